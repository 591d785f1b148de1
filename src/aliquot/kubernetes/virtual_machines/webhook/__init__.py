"""The HTTPS server of the admission webhooks, its certificates and its registration."""
