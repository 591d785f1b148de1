"""What may be written to KubeVirt's machines as far as GPUs go, and what is filled in: pure."""
