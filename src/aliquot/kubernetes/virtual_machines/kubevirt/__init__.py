"""KubeVirt: VMs that request GPUs, and the devices that they may have. Values and rules without I/O."""
