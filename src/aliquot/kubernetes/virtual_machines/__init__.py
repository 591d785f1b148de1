"""GPUs for virtual machines of Harvester and KubeVirt: rules, the node agent, controller and webhooks."""
