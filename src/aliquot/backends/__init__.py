"""Floor 3: the only code that touches GPUs and the kernel."""
