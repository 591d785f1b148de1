"""The custom resources of Harvester and KubeVirt, as far as GPUs are concerned."""
