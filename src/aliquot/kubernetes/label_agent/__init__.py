"""The node agent that follows `nvidia.com/mig.config`, and its part of the cluster's controller."""
