"""Carries out plans through ports. No effect but through them."""
