"""Aliquot partitions NVIDIA GPUs and allocates the instances to workloads."""

__version__ = "0.1.0"
