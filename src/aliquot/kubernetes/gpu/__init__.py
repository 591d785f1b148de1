"""GPUs in Kubernetes terms: labels, resources, operands and pods."""
