"""A real libvirtd per worker, and both connections to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.libvirt.connect import open_libvirt
from aliquot.libvirt.port import Libvirt

from . import daemon
from .domains import domain

CACHE = Path(tempfile.gettempdir()) / f"aliquot-libvirt-{os.getuid()}"
"""What libvirtd learns about QEMU, which takes 10 s and more: kept between runs and shared by workers."""


@pytest.fixture(scope="session")
def uri() -> Iterator[str]:
    """Start a libvirtd that only these tests use."""
    reason = daemon.missing()
    if reason:
        pytest.skip(reason)
    with daemon.running(CACHE) as address:
        yield address


@pytest.fixture(params=["binding", "virsh"])
def through(request: pytest.FixtureRequest) -> str:
    """Return each kind of connection to libvirt in turn."""
    way = str(request.param)
    if way == "binding":
        pytest.importorskip("libvirt", reason="libvirt-python is not installed")
    elif shutil.which("virsh") is None:
        pytest.skip("virsh is not installed")
    return way


@pytest.fixture
def libvirt(uri: str, through: str) -> Iterator[Libvirt]:
    with open_libvirt(uri, through) as connection:
        yield connection


class Machines:
    """VMs that are removed when the test ends."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.uri = uri
        self._folder = folder
        self._names: list[str] = []

    def virsh(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(["virsh", "-q", "-c", self.uri, *words], capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def define(self, name: str, *hostdevs: str, graphics: bool = True) -> str:
        """Define a VM, validated against libvirt's schema. Returns its UUID."""
        path = self._folder / f"{name}.xml"
        path.write_text(domain(name, *hostdevs, graphics=graphics))
        self.virsh("define", str(path), "--validate")
        self._names.append(name)
        return self.virsh("domuuid", name).strip()

    def start(self, name: str) -> None:
        self.virsh("start", name)

    def transient(self, name: str) -> str:
        """Start a VM without a definition. Returns its UUID."""
        path = self._folder / f"{name}.xml"
        path.write_text(domain(name))
        self.virsh("create", str(path), "--validate")
        self._names.append(name)
        return self.virsh("domuuid", name).strip()

    def close(self) -> None:
        for name in self._names:
            self.virsh("destroy", name, check=False)
            self.virsh("undefine", name, check=False)


@pytest.fixture
def machines(uri: str, tmp_path: Path) -> Iterator[Machines]:
    made = Machines(uri, tmp_path)
    yield made
    made.close()
