"""Code that runs inside the guest. The host imports it only for the names of the checks."""

from __future__ import annotations

import importlib

MODULES = ("machine", "functions", "mediated", "handing", "hypervisor", "vendor", "program", "fence")
"""Modules in this order: each starts in the state that the one before left."""


def load() -> None:
    """Import them, which registers their checks."""
    for name in MODULES:
        importlib.import_module(f"system.vm.inside.{name}")
