"""Floor 0: frozen values. No I/O, the packaged catalog data aside."""
