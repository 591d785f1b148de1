"""GPUs for the VMs of Harvester and KubeVirt: rules, the node agent, the controller and the admission webhooks."""
