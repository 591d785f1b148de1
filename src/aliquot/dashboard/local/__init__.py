"""The page's source for this machine, one simulated node, or all simulated nodes of a state directory."""
