"""Node agent that applies the label `nvidia.com/mig.config`, and its part of the cluster controller."""
