"""The GPU driver through its program ``nvidia-smi``, for drivers whose library cannot be loaded: in a pod, or below
another root.
"""
