"""Which GPUs an entry means, and which profiles and vGPU types."""
