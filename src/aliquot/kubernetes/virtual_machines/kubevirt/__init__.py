"""KubeVirt: virtual machines that ask for GPUs, and the devices that they may have. Values and rules, no I/O."""
