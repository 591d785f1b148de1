"""GPUs for VMs, cluster-wide: KubeVirt's permitted devices, cleanup after removed nodes, capacity."""
