"""Frozen values. No I/O, except for the packaged catalog data."""
