"""The GPU driver through its library, NVML."""
