"""The only code that touches GPUs and the kernel."""
