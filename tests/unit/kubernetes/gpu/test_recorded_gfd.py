"""What NVIDIA's own programs answered on the same simulated nodes, through the NVML ABI.

``tests/recorded/gfd/v0.20.0.jsonl``: gpu-feature-discovery of NVIDIA/k8s-device-plugin v0.20.0 (commit 1b826acc) and
that plugin's own list of devices, run on nodes of the simulator. They are unchanged but for where the kernel's table of
capability minors lies: a file that follows the formula of the MIG User Guide stood in for it. Left out: the time, and
gpu.mode, which needs the machine's sysfs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.core.config.settings import MigStrategy
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import PREFIX, labels
from support.simworld import Node

FILE = Path(__file__).parents[3] / "recorded/gfd/v0.20.0.jsonl"
BY_CHANCE = {"h100-80gb-hbm3,a100-sxm4-80gb*2", "a10,a16"}
"""Nodes of several products, of which gpu-feature-discovery shows one by chance."""
ONLY_OURS = {PREFIX + name for name in ("gfd.timestamp", "gpu.mode", "gpu.present")}


class Row(msgspec.Struct, frozen=True):
    """One run. ``devices``: ``resource index uuid [paths]``, sorted; ``refused``: why the plugin gave none at all."""

    node: str
    cuts: tuple[tuple[str, str], ...]
    strategy: MigStrategy
    labels: dict[str, str]
    devices: tuple[str, ...] = ()
    refused: str = ""

    @property
    def name(self) -> str:
        return " ".join((self.node, *(f"{gpus}:{wish}" for gpus, wish in self.cuts), self.strategy))

    def again(self) -> Node:
        node = Node(self.node)
        for gpus, wish in self.cuts:
            node.cut(gpus, wish)
        return node


ROWS = [msgspec.json.decode(line, type=Row) for line in FILE.read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_as_recorded(row: Row) -> None:
    inventory, facts = row.again().read()
    ours = labels(inventory, facts, row.strategy, now=0)
    ours = {name: value for name, value in ours.items() if name.startswith(PREFIX) and name not in ONLY_OURS}
    if row.node in BY_CHANCE:
        assert ours.keys() == row.labels.keys()
    else:
        assert ours == row.labels

    found = offer(inventory, facts, row.strategy)
    devices = [f"{r.name} {d.index} {d.id} [{' '.join(d.paths)}]" for r in found.resources for d in r.devices]
    if "does not match any resource patterns" in row.refused:
        assert (len(devices), found.refusals) == (4, ()), "compute instances do not take the others away"
    else:
        assert sorted(devices) == list(row.devices)
        assert found.refusals or not row.refused, "what they refuse, we refuse with a sentence"


def test_the_recording_has_what_it_claims() -> None:
    assert len(ROWS) == 60
    assert {row.strategy for row in ROWS} == {"none", "single", "mixed"}
    assert sum(bool(row.refused) for row in ROWS) == 12
    assert {row.node for row in ROWS} > BY_CHANCE
