"""The model of the driver: GPUs, instances, compute instances, vGPUs, events."""
