"""Plans and GPUs as text on a terminal."""
