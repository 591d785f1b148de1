"""The names of systemd on the bus."""

SYSTEMD = "org.freedesktop.systemd1"
MANAGER = f"{SYSTEMD}.Manager"
UNIT = f"{SYSTEMD}.Unit"
ROOT = "/org/freedesktop/systemd1"
