"""MIG devices for containers of Docker, Podman and nerdctl: choice of a device, arguments, and holders."""
