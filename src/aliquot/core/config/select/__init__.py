"""The resolution of entries: their GPUs, profiles and vGPU types on one node."""
