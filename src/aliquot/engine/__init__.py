"""Floor 2: carries out plans through ports. No effect but through them."""
