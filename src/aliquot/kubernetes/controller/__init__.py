"""Cluster controller: one leader that passes cluster-wide settings to the agents."""
