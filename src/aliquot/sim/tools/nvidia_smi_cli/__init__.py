"""The stand-in for nvidia-smi: what it asks of the driver, and what it prints."""
