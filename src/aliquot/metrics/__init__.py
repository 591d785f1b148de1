"""What is measured: one table of names, and collectors that fill it from looks and outcomes."""
