"""Who has devices of this host: containers and reservations for them."""
