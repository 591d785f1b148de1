"""The custom resources of Harvester and KubeVirt, reduced to the fields that GPUs need."""
