"""Kubelet's wire formats. ``*.proto`` are ours, the other modules are made from them by ``tools/build_protos.py``."""
