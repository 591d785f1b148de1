"""Sharing a GPU with VMs: vGPUs, virtual functions, mixed-size mode, passthrough. Loaded on demand."""
