"""Rules for writes of Harvester's objects, each a pure function of a request and the cluster state."""
