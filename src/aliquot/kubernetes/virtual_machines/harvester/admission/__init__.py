"""What may be written to Harvester's objects: every rule as a pure function of a request and the world."""
