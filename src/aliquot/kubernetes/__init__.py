"""What Kubernetes and NVIDIA's operator expect of a node: labels, resources, operands, protocols."""
