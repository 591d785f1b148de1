"""Reads during a repartition by another process: no errors, and each result is a state that existed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from contract.conftest import KINDS, Machine


@pytest.mark.parametrize("kind", KINDS)
def test_reading_while_instances_come_and_go(machine: Callable[[str], Machine], kind: str) -> None:
    node = machine("h100-80gb-hbm3")
    node.node.set_mode(0, True)
    reader, writer = node.open(kind), node.open("direct")
    pci = writer.read().gpus[0].pci
    done = threading.Event()

    def cut() -> None:
        for _ in range(40):
            made = [writer.create_gpu_instance(pci, 19, start, 1) for start in range(7)]
            for instance in made:
                writer.destroy_gpu_instance(pci, instance)
        done.set()

    worker = threading.Thread(target=cut)
    worker.start()
    reads = 0
    while not done.is_set():
        assert all(i.profile_id == 19 for i in reader.read_gpu(pci).instances)
        reads += 1
    worker.join()
    assert reads > 3
    assert reader.read_gpu(pci).instances == ()
