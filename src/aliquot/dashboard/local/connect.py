"""Opening the source for this host, one simulated node, or all simulated nodes of a state directory."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

from aliquot.dashboard.local.fleet_state import FleetState
from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.local.previews import Address
from aliquot.dashboard.local.source import LocalSource, Poller
from aliquot.dashboard.view_models import NODE, SIMULATOR
from aliquot.errors import UsageError
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
    """Open the source for this host (``node`` None) or a simulated node. Call this on a running event loop.

    With ``fleet``, the source has all simulated nodes of a state directory, including those created later.
    ``config_file`` is the path of a file with named configs. ``address`` adapts a next step to a node.
    Nodes are not read before ``run``.

    Raises ConfigError if the file is invalid, StorageError if it cannot be read, BlockedError if the simulated node
    does not exist.
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
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the config file {path}: {why}", next_step=f"ls -l {quote(path)}") from error
    return load(text, path)
