"""The web page: what a fleet of GPUs is, pictured and live, and changes that are looked at before they are made."""
