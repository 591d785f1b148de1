"""Simulated nodes and their source, for the tests of ``dashboard/local``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.dashboard.change_requests import PartitionGpu
from aliquot.dashboard.local.connect import open_local
from aliquot.dashboard.local.source import LocalSource
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.dashboard.source_contract import Bed, Loop

TEMPLATE = "h100-80gb-hbm3*2"


class HereBed(Bed):
    """A source with a simulated node, whose first GPU is in MIG mode and has no instances."""

    source: LocalSource

    def __init__(self, loop: Loop, state_dir: str, node: str, *, fleet: bool, config_file: str | None = None) -> None:
        super().__init__(loop)
        self.state_dir, self.node = state_dir, node
        self.sim = SimClient(state_dir, node)
        self.sim.set_mode(0, True)
        self.gpu = str(self.sim.show()["gpus"][0]["pci"])
        self.good = self.cut("3g.40gb,1g.10gb*2")
        self.other = self.cut("2g.20gb*3")
        self.impossible = self.cut("4g.40gb*2")
        named = None if fleet else node
        self.source = loop.call(
            lambda: open_local(named, fleet=fleet, state_dir=state_dir, config_file=config_file, address=addressed)
        )

    def cut(self, mig: str, **more: str) -> PartitionGpu:
        return PartitionGpu(node=self.node, gpu=self.gpu, mig=mig, **more)  # type: ignore[arg-type]

    def disturb(self) -> None:
        self.sim.create(0, "1g.10gb")

    def changes(self) -> int:
        return sum(bool(call.get("write")) for call in self.sim.calls())

    def profiles(self) -> list[str]:
        """Return the profiles of the first GPU's instances, as the page shows them."""
        inventory = self.make_observation().inventory
        return sorted(i.profile for i in inventory.gpus[0].instances) if inventory else []


def addressed(step: str, node: str) -> str:
    return f"{step} --sim {node}" if step.startswith("aliquot ") else step


@contextmanager
def bed(
    state_dir: str, *, fleet: bool = False, template: str = TEMPLATE, config_file: str | None = None
) -> Iterator[HereBed]:
    """Observe a node ``one`` until the block ends."""
    if "one" not in control.names(state_dir):
        control.start(state_dir, template, "one")
    loop = Loop()
    try:
        made = HereBed(loop, state_dir, "one", fleet=fleet, config_file=config_file)
        loop.start(made.source.run())
        made.wait(lambda: made.source.fleet.ready, "a fleet that is ready")
        yield made
        loop.run(made.source.aclose())
    finally:
        loop.close()
