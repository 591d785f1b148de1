"""Answers of NVIDIA's own programs on the same simulated nodes, through the NVML ABI.

``tests/recorded/gfd/v0.20.0.jsonl`` holds the output of gpu-feature-discovery of NVIDIA/k8s-device-plugin v0.20.0
(commit 1b826acc), and that plugin's own list of devices, on nodes of the simulator. The programs are unchanged except
for the path of the kernel's table of capability minors, which was replaced by a file that follows the formula of the
MIG User Guide. The time and gpu.mode, which needs the host's sysfs, are left out.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.core.config.settings import MigStrategy
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.kubernetes.gpu.gfd_labels import PREFIX, labels
from support.simnodes import Node

FILE = Path(__file__).parents[3] / "recorded/gfd/v0.20.0.jsonl"
BY_CHANCE = {"h100-80gb-hbm3,a100-sxm4-80gb*2", "a10,a16"}
"""Nodes of several products, of which gpu-feature-discovery shows one by chance."""
ONLY_OURS = {PREFIX + name for name in ("gfd.timestamp", "gpu.mode", "gpu.present")}


class Row(msgspec.Struct, frozen=True):
    """A run. ``devices`` are the sorted lines ``resource index uuid [paths]``. ``refused`` is the reason why the plugin
    offered none.
    """

    node: str
    cuts: tuple[tuple[str, str], ...]
    strategy: MigStrategy
    labels: dict[str, str]
    devices: tuple[str, ...] = ()
    refused: str = ""

    @property
    def name(self) -> str:
        return " ".join((self.node, *(f"{gpus}:{request}" for gpus, request in self.cuts), self.strategy))

    def again(self) -> Node:
        node = Node(self.node)
        for gpus, desired_gpu in self.cuts:
            node.cut(gpus, desired_gpu)
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
        assert (len(devices), found.refusals) == (4, ()), "compute instances do not remove the other devices"
    else:
        assert sorted(devices) == list(row.devices)
        assert found.refusals or not row.refused, "Aliquot refuses the same, with a sentence"


def test_the_recording_has_what_it_claims() -> None:
    assert len(ROWS) == 60
    assert {row.strategy for row in ROWS} == {"none", "single", "mixed"}
    assert sum(bool(row.refused) for row in ROWS) == 12
    assert {row.node for row in ROWS} > BY_CHANCE
