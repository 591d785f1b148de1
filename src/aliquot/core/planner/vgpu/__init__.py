"""Sharing a GPU with virtual machines: vGPUs, virtual functions, mixed-size mode, passthrough. Loaded on demand."""
