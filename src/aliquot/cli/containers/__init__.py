"""`aliquot docker`."""
