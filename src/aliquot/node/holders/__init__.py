"""Holders of this host's devices: containers and reservations for them."""
