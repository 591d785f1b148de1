"""GRES types that jobs can request: counts, near misses, layouts on demand, billing weights."""
