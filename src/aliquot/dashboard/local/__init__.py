"""The source for this host, one simulated node, or all simulated nodes of a state directory."""
