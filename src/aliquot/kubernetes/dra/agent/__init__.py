"""The node agent that prepares ResourceClaims and publishes the devices of its node."""
