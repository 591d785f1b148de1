"""GPUs as Kubernetes names them: labels, resources, operands, pods."""
