"""What both node agents share."""
