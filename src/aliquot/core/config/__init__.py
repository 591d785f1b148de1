"""Configuration text to model values: strings in, values out."""
