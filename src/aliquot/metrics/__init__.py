"""Metrics: one table of names, and collectors that fill it from observations and outcomes."""
