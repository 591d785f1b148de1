"""A simulated node as a backend, without NVML."""
