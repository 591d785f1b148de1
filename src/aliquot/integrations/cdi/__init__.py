"""Container Device Interface: what a container runtime adds to a container that asks for a GPU or MIG device."""
