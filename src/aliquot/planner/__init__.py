"""Floor 1: pure functions, model in, model out."""
