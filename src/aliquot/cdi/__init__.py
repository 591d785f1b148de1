"""Device specs of the Container Device Interface, for Docker, Podman, containerd and CRI-O."""
