"""Services of the host, through D-Bus. Only this package communicates with systemd."""
