"""The machine around a simulated node, as the engine and the agents ask for it."""

from __future__ import annotations

from contextlib import AbstractContextManager, closing

from aliquot.sim.client import SimClient


class SimHost:
    """The machine around a simulated node. Lanes call it at the same time: each call has a connection of its own."""

    def __init__(self, client: SimClient) -> None:
        self._node_key = (client.state_dir, client.name)

    def reset(self, pci: str) -> None:
        with self._node() as node:
            node.reset(pci)

    def terminate(self, pid: int) -> None:
        with self._node() as node:
            node.terminate(pid)

    def reboot(self) -> None:
        """Restarts the whole node, as the machine's power button would."""
        with self._node() as node:
            node.reboot()

    def boot(self) -> str:
        """The id of this boot, which changes with a reboot."""
        with self._node() as node:
            return str(node.show()["boot_id"])

    def _node(self) -> AbstractContextManager[SimClient]:
        return closing(SimClient(*self._node_key))
