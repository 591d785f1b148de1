"""Views of what a cluster publishes and allocates through DRA. Reads API objects only."""
