"""Runs inside the guest; the host imports it for the names of the checks only."""

from __future__ import annotations

import importlib

MODULES = ("machine", "functions", "mediated", "handing", "hypervisor", "vendor", "program", "fence")
"""In this order: each starts where the one before left the machine."""


def load() -> None:
    """Import them, which registers their checks."""
    for name in MODULES:
        importlib.import_module(f"system.vm.inside.{name}")
