"""Simulated nodes: an independent model of the driver, a server that owns its state, and two protocols to access it."""
