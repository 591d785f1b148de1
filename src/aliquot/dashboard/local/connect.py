"""Opening the source for this machine, for one simulated node, or for all of a state directory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.local.source import LocalSource, Poller
from aliquot.dashboard.view_models import NODE, SIMULATOR
from aliquot.errors import StorageError
from aliquot.foundation import paths

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile


def _as_it_is(step: str, node: str) -> str:
    return step


def open_local(
    node: str | None,
    *,
    fleet: bool,
    state_dir: str | None = None,
    config_file: str | None = None,
    address: Address = _as_it_is,
) -> LocalSource:
    """The machine itself (``node`` None), a simulated node, or with ``fleet`` all simulated nodes of a state directory,
    also such as come later. ``config_file`` is a path: its named configs can be asked for. ``address`` makes a next
    step one that can be typed for a node. Nothing is read before ``run``. To be called on a running event loop.

    Raises ConfigError for a file with faults, StorageError for one that cannot be read, BlockedError for a simulated
    node that is not there.
    """
    file = _config(config_file) if config_file else None
    state = FleetState()
    poller: Poller
    if fleet:
        from aliquot.dashboard.local.fleet_poller import FleetPoller

        base = os.path.abspath(state_dir or paths.state_dir())
        poller = FleetPoller(base, state)
        return LocalSource(SIMULATOR, "simulated nodes", state, poller, file=file, address=address)
    from aliquot.dashboard.local.libvirt_vms import LibvirtVms
    from aliquot.dashboard.local.node_poller import NodePoller

    if node is not None:
        _check_exists(node, state_dir)
    access = NodeAccess(node, state_dir)
    poller = NodePoller(access, state)
    node_address = address if node else _as_it_is
    found = LocalSource(NODE, access.name, state, poller, file=file, address=node_address)
    found.vms = LibvirtVms(access, node_address)
    return found


def _check_exists(node: str, state_dir: str | None) -> None:
    from aliquot.sim import lifecycle as control

    base = state_dir or paths.state_dir()
    if node not in control.names(base):
        raise control.unknown_node(base, node)


def _config(path: str) -> ConfigFile:
    from aliquot.core.config.load import load

    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StorageError(f"cannot read the config file {path}: {why}", next_step=f"ls -l {path}") from error
    return load(text, path)
