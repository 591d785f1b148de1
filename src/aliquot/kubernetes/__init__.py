"""The labels, resources, operands and protocols that Kubernetes and NVIDIA's operator expect of a node."""
