"""The simulated node's `nvidia-smi` and `sriov-manage`."""
