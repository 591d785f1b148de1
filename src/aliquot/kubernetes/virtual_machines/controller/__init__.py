"""GPUs for virtual machines, cluster-wide: KubeVirt's permitted devices, nodes that went, capacity."""
