"""Choice of a container's device, its arguments for a runtime, and queries to runtimes."""
