"""Pure functions, model in, model out."""
