"""The stand-in for nvidia-smi: its requests to the driver, and its output."""
