"""The engine: it applies plans, and has effects only through ports."""
