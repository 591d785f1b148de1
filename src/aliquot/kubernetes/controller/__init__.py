"""The cluster controller: one leader that passes cluster-wide settings on to the agents."""
