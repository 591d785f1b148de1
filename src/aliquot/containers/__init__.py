"""Docker, Podman and nerdctl: which MIG device a container gets, how it is told so, and who has it."""
