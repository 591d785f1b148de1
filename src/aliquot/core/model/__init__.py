"""Frozen values. No I/O, the packaged catalog data aside."""
