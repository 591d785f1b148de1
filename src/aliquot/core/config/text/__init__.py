"""YAML with positions, and the faults of a file."""
