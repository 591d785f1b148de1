"""Check whether containers can get MIG devices on this host: ``gather`` reads facts, ``judge`` reports findings."""
