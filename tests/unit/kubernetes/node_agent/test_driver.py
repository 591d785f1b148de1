"""Choice of the driver root by the agent, on trees made for the test."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.node_agent.driver_root import DriverLocation, find_driver

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
