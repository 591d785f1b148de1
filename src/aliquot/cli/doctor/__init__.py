"""``aliquot doctor``: what is missing on this host or in a cluster, and what to type."""
