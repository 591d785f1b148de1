"""A simulated node, its CDI file and a container engine that reads the file. Skipped if no container can run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.cdi.api import refresh
from aliquot.cdi.options import CdiOptions
from aliquot.core.model.inventory import Inventory
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.containers.dockerbed import INSIDE, Bed
from system.containers.dockerd import Dockerd
from system.containers.dockerd import unusable as docker_unusable
from system.containers.podman import Done, Podman, python, unusable


class Site:
    """A simulated node with containers."""

    def __init__(self, state: str, name: str, engine: Podman) -> None:
        self.state = state
        self.name = name
        self.engine = engine
        self.node = SimClient(state, name)
        self.options = CdiOptions(simulated=control.folder(state, name))
        control.library(state, name)

    def read(self) -> Inventory:
        with connect(self.name, state_dir=self.state) as connection:
            return connection.backend.read()

    def refresh(self, **options: Any) -> Inventory:
        """Write the CDI file of the node's current devices."""
        found = self.read()
        refresh(found, msgspec.structs.replace(self.options, **options), str(self.engine.cdi))
        return found

    def start(
        self, *devices: str, others: Sequence[str] = (), options: Sequence[str] = (), before: str = "true"
    ) -> Done:
        """Run the client in a container with these devices. The client tries to open ``others`` (UUIDs). ``before`` is
        a shell command that runs first.
        """
        return self.engine.run(
            *("/bin/sh", "-c", f"{before}; exec {python()} /opt/nvml/inside.py"),
            devices=devices,
            env={"PYTHONPATH": "/opt/nvml", "OTHERS": json.dumps(list(others))},
            mounts={"/opt/nvml/inside.py": str(INSIDE)},
            options=options,
        )

    def seen(self, *devices: str, others: Sequence[str] = (), options: Sequence[str] = ()) -> dict[str, Any]:
        """Return what the client observes in a container with these devices."""
        done = self.start(*devices, others=others, options=options)
        assert done.code == 0, done.err
        return msgspec.json.decode(done.out, type=dict[str, Any])


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    reason = unusable()
    if reason:
        pytest.skip(reason)
    made = Podman(tmp_path_factory.mktemp("podman"))
    yield made
    made.close()


@pytest.fixture
def site(engine: Podman, tmp_path: Path) -> Iterator[Site]:
    """Yield three A100: the first in two 3g.20gb, the second with a 1g.5gb, the third whole. Its state directory is
    longer than 108 bytes, the limit of a socket path.
    """
    state = str(tmp_path / ("s" * 60) / ("t" * 60))
    control.start(state, "a100-sxm4-40gb*3", "n")
    made = Site(state, "n", engine)
    for gpu, profiles in ((0, ("3g.20gb", "3g.20gb")), (1, ("1g.5gb",))):
        made.node.set_mode(gpu, True)
        for profile in profiles:
            made.node.create(gpu, profile)
    yield made
    made.node.close()
    control.stop(state)
    for path in engine.cdi.iterdir():
        path.unlink()


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Dockerd, Podman]]:
    reason = docker_unusable() or unusable()
    if reason:
        pytest.skip(reason)
    podman = Podman(tmp_path_factory.mktemp("podman"), events="file")
    docker = Dockerd(podman.cdi)
    yield docker, podman
    docker.close()
    podman.close()


@pytest.fixture
def bed(engines: tuple[Dockerd, Podman], tmp_path: Path) -> Iterator[Bed]:
    made = Bed(*engines, tmp_path / "state")
    yield made
    made.close()


@pytest.fixture(params=["docker", "podman"])
def runtime(request: pytest.FixtureRequest) -> str:
    return str(request.param)
