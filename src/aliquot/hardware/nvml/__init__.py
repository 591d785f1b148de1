"""The driver by its library."""
