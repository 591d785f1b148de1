"""Parts that both node agents share."""
