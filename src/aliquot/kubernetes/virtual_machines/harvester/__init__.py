"""Harvester's ``devices.harvesterhci.io/v1beta1``: GPUs for virtual machines as objects.

Values and rules; only ``driver_pod`` speaks to the API server.
"""
