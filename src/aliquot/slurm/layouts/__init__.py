"""Layouts of nodes, as features or as CLOUD nodes."""
