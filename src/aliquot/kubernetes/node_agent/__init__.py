"""Parts that the roles of a node's agent share."""
