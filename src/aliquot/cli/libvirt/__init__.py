"""`aliquot libvirt`."""
