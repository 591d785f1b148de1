"""Device nodes decide what the library shows. Tested without a container, below a handmade root."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from system.containers.dockerbed import INSIDE

GPU, CAPS = 120, 122


def make(root: Path, name: str, major: int, minor: int) -> None:
    path = root / "dev" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(major, minor))
        os.close(os.open(path, os.O_RDONLY))
    except PermissionError:
        pytest.skip("device nodes cannot be made and opened here (root, and no device cgroup, are needed)")
    except OSError:
        return  # ENXIO: no driver has that number


def seen(state: str, root: Path | str) -> dict[str, Any]:
    library = Path(control.library(state, "n"))
    env = {**os.environ, "LD_LIBRARY_PATH": str(library.parent), "ALIQUOT_SIM_DEV_ROOT": str(root)}
    done = subprocess.run([sys.executable, str(INSIDE)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a node with two A100 in MIG mode. The second has two 3g.20gb with the instance ids 1 and 2."""
    state = str(tmp_path_factory.mktemp("state"))
    control.start(state, "a100-sxm4-40gb*2", "n")
    sim = SimClient(state, "n")
    sim.set_mode(1, True)
    sim.create(1, "3g.20gb")
    sim.create(1, "3g.20gb")
    sim.close()
    yield state
    control.stop(state)


def caps(gi: int) -> tuple[int, int]:
    """Return the capability minors of the second GPU's instance."""
    return 3 + 135 + 9 * gi, 3 + 135 + 9 * gi + 1


def test_without_a_root_everything_is_there(node: str) -> None:
    assert [len(g["mig"]) for g in seen(node, "")["gpus"]] == [0, 2]


def test_a_root_without_nodes_shows_nothing(node: str, tmp_path: Path) -> None:
    assert seen(node, tmp_path)["gpus"] == []


def test_a_gpu_and_one_of_its_instances(node: str, tmp_path: Path) -> None:
    make(tmp_path, "nvidia1", GPU, 1)
    gi, ci = caps(2)
    make(tmp_path, f"nvidia-caps/nvidia-cap{gi}", CAPS, gi)
    (gpu,) = seen(node, tmp_path)["gpus"]
    assert (gpu["index"], gpu["minor"], gpu["mig"]) == (0, 1, [])  # the node of the compute instance is missing
    make(tmp_path, f"nvidia-caps/nvidia-cap{ci}", CAPS, ci)
    (gpu,) = seen(node, tmp_path)["gpus"]
    assert [d["index"] for d in gpu["mig"]] == [0]


@pytest.mark.parametrize(("major", "minor"), [(GPU, 0), (CAPS, 1), (1, 3)])
def test_a_node_of_that_name_with_other_numbers_opens_nothing(
    node: str, tmp_path: Path, major: int, minor: int
) -> None:
    make(tmp_path, "nvidia1", major, minor)
    assert seen(node, tmp_path)["gpus"] == []


def test_a_plain_file_is_no_device(node: str, tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia1").write_text("")
    assert seen(node, tmp_path)["gpus"] == []


def test_only_the_right_to_configure_lists_instances(node: str, tmp_path: Path) -> None:
    make(tmp_path, "nvidia1", GPU, 1)
    assert [g["listing"] for g in seen(node, tmp_path)["gpus"]] == [4]
    make(tmp_path, "nvidia-caps/nvidia-cap1", CAPS, 1)
    assert [g["listing"] for g in seen(node, tmp_path)["gpus"]] == [0]
