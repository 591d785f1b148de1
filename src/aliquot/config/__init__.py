"""Floor 1: text to model. Strings in, values out."""
