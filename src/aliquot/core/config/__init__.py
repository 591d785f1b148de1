"""Text to model. Strings in, values out."""
