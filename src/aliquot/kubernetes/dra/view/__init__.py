"""What a cluster publishes and allocates through DRA, and what is wrong with it. Reads API objects only."""
