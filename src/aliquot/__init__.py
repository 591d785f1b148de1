"""Aliquot divides NVIDIA GPUs and hands out the pieces."""

__version__ = "0.1.0"
