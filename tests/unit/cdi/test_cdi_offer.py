"""Devices of the device plugin in CDI files: every id is a CDI name and opens the same device nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.cdi import spec
from aliquot.cdi.options import CdiOptions
from aliquot.cdi.probe import probe_host
from aliquot.core.config.settings import MigStrategy
from aliquot.kubernetes.gpu.device_resources import offer
from aliquot.node.connect import Connection, connect
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

MIXED: tuple[tuple[str, ...] | None, ...] = (("3g.20gb", "3g.20gb"), (), ("2g.10gb",), None)
EQUAL: tuple[tuple[str, ...] | None, ...] = (("3g.20gb",), ("3g.20gb", "3g.20gb"))
"""The instances of each GPU; None for a GPU that is not in MIG mode."""


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Connection]:
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    state, gpus = str(tmp_path / "state"), request.param
    control.start(state, f"a100-sxm4-40gb*{len(gpus)}", "n")
    sim = SimClient(state, "n")
    for index, profiles in enumerate(gpus):
        if profiles is not None:
            sim.set_mode(index, True)
            for profile in profiles:
                sim.create(index, profile)
    sim.close()
    with connect("n", state_dir=state) as connection:
        yield connection
    control.stop(state)


@pytest.mark.parametrize(
    ("node", "strategy"), [(MIXED, "none"), (MIXED, "mixed"), (EQUAL, "single"), (EQUAL, "none")], indirect=["node"]
)
def test_every_id_that_is_offered_is_a_name_that_opens_the_same(node: Connection, strategy: MigStrategy) -> None:
    inventory = node.backend.read()
    options = probe_host(inventory, CdiOptions(simulated="/s", whole_mig=True))
    document = spec.document(inventory, options)
    nodes = {d["name"]: {n["path"] for n in d["containerEdits"]["deviceNodes"]} for d in document["devices"]}
    offered = [d for r in offer(inventory, node.backend.facts(), strategy).resources for d in r.devices]
    assert offered
    for device in offered:
        assert device.id in nodes
        if device.id.startswith("MIG-"):
            assert nodes[device.id] == set(device.paths)
        else:
            assert nodes[device.id] >= set(device.paths)
