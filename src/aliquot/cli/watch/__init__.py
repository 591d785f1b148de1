"""`--watch`: a screen, or lines, that follow the node."""
