"""The rows of ``aliquot docker``: MIG devices for plain containers."""

from __future__ import annotations

from aliquot.cli.options import Command

DOCKER = Command(
    "docker",
    "plain containers of Docker, Podman and containerd: a free MIG device for each",
    children=(),
)
