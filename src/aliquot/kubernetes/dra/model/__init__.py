"""Devices, counters, slices, claims and classes of DRA as values. Pure functions, no I/O."""
