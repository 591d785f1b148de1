"""Choice of the driver root by an agent, and by a command beside it, on trees made for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.errors import NoDriverError
from aliquot.node.connect import connect
from aliquot.node.driver_root import DriverLocation, driver_root, find_driver

LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


def put(root: Path) -> None:
    (root / LIBRARY).parent.mkdir(parents=True)
    (root / LIBRARY).touch()


@pytest.mark.parametrize(
    ("places", "asked", "host"),
    [
        (["", "run/nvidia/driver", "opt/driver"], "/opt/driver", "/opt/driver"),
        (["", "run/nvidia/driver"], "/opt/driver", "/run/nvidia/driver"),
        (["", "run/nvidia/driver"], "", "/run/nvidia/driver"),
        ([""], "/run/nvidia/driver", "/"),
    ],
)
def test_the_first_place_that_has_a_library(tmp_path: Path, places: list[str], asked: str, host: str) -> None:
    for place in places:
        put(tmp_path / place)
    found = find_driver(str(tmp_path), asked)
    assert found.host == host
    assert found.local_root == str(tmp_path / host.lstrip("/")).rstrip("/")


def test_no_driver_anywhere(tmp_path: Path) -> None:
    assert find_driver(str(tmp_path), "") == DriverLocation()


def test_a_command_in_the_agents_container_finds_the_agents_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ALIQUOT_DRIVER_ROOT", raising=False)
    monkeypatch.setenv("HOST_ROOT_MOUNT", f"{tmp_path}/")
    assert driver_root() == "/"
    below = tmp_path / "run/nvidia/driver"
    put(below)
    assert driver_root() == str(below)
    with pytest.raises(NoDriverError) as refused:
        connect()
    assert str(below) in str(refused.value.details), "the file is empty"
    put(tmp_path / "opt/driver")
    monkeypatch.setenv("NVIDIA_DRIVER_ROOT", "/opt/driver")
    assert driver_root() == str(tmp_path / "opt/driver")
    monkeypatch.setenv("ALIQUOT_DRIVER_ROOT", "/elsewhere")
    assert driver_root() == "/elsewhere"
