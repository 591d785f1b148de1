"""The resolution of a named config for the GPUs of one node."""

from __future__ import annotations

import msgspec

from aliquot.core.config.file import ConfigEntry, ConfigFile
from aliquot.core.config.select.selection import ConfigSelection
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.errors import ConfigError


def named(config: ConfigFile, name: str | None) -> tuple[str, tuple[ConfigEntry, ...]]:
    """Return the named config. ``name`` may be None if the file has only one. Raises ConfigError."""
    names = config.names
    if not names:
        raise ConfigError(f"{config.source} has no named config")
    if name is None and len(names) == 1:
        return names[0], config.configs[names[0]]
    listed = ", ".join(names)
    if name is None:
        raise ConfigError(
            f"{config.source} has {len(names)} named configs: choose one with -c",
            details=(f"{config.source} has: {listed}",),
        )
    if name not in config.configs:
        raise ConfigError(
            f"{config.source} has no named config {name!r}{did_you_mean(name, names)}",
            details=(f"{config.source} has: {listed}",),
        )
    return name, config.configs[name]


def select(config: ConfigFile, name: str | None, inventory: Inventory) -> Desired:
    """Return the desired state of this node by a named config. Entries count in the order of the file; GPUs that no
    entry selects are left alone. Errors that depend on this node become failures, which block. Raises ConfigError for
    errors on every node.
    """
    chosen, entries = named(config, name)
    return ConfigSelection(config, chosen, inventory).select(entries)


def mode_only(desired: Desired) -> Desired:
    """Reduce a desired state to the MIG modes: instances, vGPUs and passthrough are left as they are."""
    gpus = tuple(DesiredGpu(gpu.pci, gpu.mig, None, gpu.source) for gpu in desired.gpus)
    return msgspec.structs.replace(desired, gpus=gpus)
