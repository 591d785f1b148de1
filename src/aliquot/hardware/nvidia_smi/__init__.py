"""The GPU driver through its program ``nvidia-smi``, where its library is out of reach: in a pod, or below a root."""
