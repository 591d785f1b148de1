"""Harvester's ``devices.harvesterhci.io/v1beta1``: GPUs for VMs as objects.

Values and rules; only ``driver_pod`` calls the API server.
"""
