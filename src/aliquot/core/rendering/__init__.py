"""GPUs and plans as pictures are made of: lettered pieces, and actions in words. Faces give them a look."""
