"""A host's GPUs, real or simulated, opened together with everything that holds them."""
