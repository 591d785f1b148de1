"""YAML with positions, and the errors of a file."""
