"""Rules for writes of KubeVirt's VMs that request GPUs, and completion of such VMs. Pure."""
