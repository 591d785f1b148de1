"""Harvester's objects for USB devices and for network ports with virtual functions, on nodes that serve all devices."""
