"""Services of the host, through D-Bus. The only package that speaks to systemd."""
