"""The host of a simulated node, for the engine and the agents."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing

from aliquot.sim.client import SimClient


class SimHost:
    """The host of a simulated node. Threads may use it in parallel: each call opens its own connection."""

    def __init__(self, client: SimClient) -> None:
        self._node_key = (client.state_dir, client.name)

    def reset(self, pci: str) -> None:
        with self._node() as node:
            node.reset(pci)

    def terminate(self, pid: int) -> None:
        with self._node() as node:
            node.terminate(pid)

    def reboot(self) -> None:
        """Restart the whole node, like the host's power button."""
        with self._node() as node:
            node.reboot()

    def boot(self) -> str:
        """Return the id of this boot, which changes with a reboot."""
        with self._node() as node:
            return str(node.show()["boot_id"])

    def _node(self) -> AbstractContextManager[SimClient]:
        return closing(SimClient(*self._node_key))
