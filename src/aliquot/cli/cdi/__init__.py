"""`aliquot cdi`."""
