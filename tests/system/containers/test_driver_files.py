"""Driver files, hooks and the command line, observed from real containers. The driver is a handmade tree of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from aliquot.cdi.api import refresh
from aliquot.cdi.options import SIMULATED_MAJORS, CdiOptions
from aliquot.cdi.probe import probe_host
from support import factory, forkserver
from system.containers.conftest import Site
from system.containers.podman import Podman

SOURCE = str(Path(__file__).resolve().parents[3] / "src")
FOLDER = "/opt/driver/lib"
LIBRARY = "libcuda.so.570.172.08"
SHELL = ("/bin/busybox", "sh", "-c")


@pytest.fixture
def cdi(engine: Podman) -> Iterator[str]:
    yield str(engine.cdi)
    for path in engine.cdi.iterdir():
        path.unlink()


def driver(root: Path) -> None:
    """Create a driver that only ldconfig lists, with the folder of a device socket."""
    (root / FOLDER[1:]).mkdir(parents=True)
    (root / FOLDER[1:] / LIBRARY).write_text("the library")
    (root / FOLDER[1:] / "libcuda.so.1").symlink_to(LIBRARY)
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf.d/nvidia.conf").write_text(FOLDER)


def write(cdi: str, root: Path, hook: str) -> None:
    """Write the CDI file for that driver. It uses device numbers that Linux never assigns."""
    inventory = msgspec.structs.replace(factory.inventory("a100-sxm4-40gb"), driver="570.172.08")
    observed = probe_host(inventory, CdiOptions(driver_root=str(root), hook=hook))
    assert observed.host is not None
    machine = msgspec.structs.replace(observed.host, majors=SIMULATED_MAJORS, hook=hook, drm={}, modeset=False)
    refresh(inventory, msgspec.structs.replace(observed, host=machine), cdi)


def test_without_the_hook_libraries_are_there_under_their_links_names(engine: Podman, cdi: str, tmp_path: Path) -> None:
    driver(tmp_path)
    write(cdi, tmp_path, "")
    script = f"cat {FOLDER}/libcuda.so.1 {FOLDER}/{LIBRARY}; echo; echo $LD_LIBRARY_PATH; echo x > {FOLDER}/libcuda.so"
    done = engine.run(*SHELL, script, devices=("nvidia.com/gpu=0",))
    assert done.out == f"the librarythe library\n{FOLDER}\n"
    assert "Read-only file system" in done.err


def test_the_hook_is_run_with_what_it_needs(engine: Podman, cdi: str, tmp_path: Path) -> None:
    driver(tmp_path)
    hook = tmp_path / "nvidia-cdi-hook"
    newer = "enable-cuda-compat disable-device-node-modification update-application-profile"
    message = f'[ "$1" != --help ] || {{ printf "   %s\\n" {newer}; exit 0; }}'
    hook.write_text(f'#!/bin/sh\n{message}\necho "$@" >> {tmp_path}/called\ncat >> {tmp_path}/state\n')
    hook.chmod(0o755)
    write(cdi, tmp_path, str(hook))
    done = engine.run(*SHELL, "ls /dev/nvidia*; echo $LD_LIBRARY_PATH", devices=("nvidia.com/gpu=0",))
    assert done.out.split() == ["/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia0", "/dev/nvidiactl"], done.err
    assert (tmp_path / "called").read_text().splitlines() == [
        f"create-symlinks --link {LIBRARY}::{FOLDER}/libcuda.so.1 --link libcuda.so.1::{FOLDER}/libcuda.so",
        f"enable-cuda-compat --host-driver-version={LIBRARY.removeprefix('libcuda.so.')}",
        f"update-ldcache --folder {FOLDER}",
        "disable-device-node-modification",
        "update-application-profile",
    ]
    assert '"bundle"' in (tmp_path / "state").read_text()


def test_a_driver_file_that_is_gone_stops_the_container(engine: Podman, cdi: str, tmp_path: Path) -> None:
    driver(tmp_path)
    write(cdi, tmp_path, "")
    (tmp_path / FOLDER[1:] / LIBRARY).unlink()
    done = engine.run(*SHELL, "true", devices=("nvidia.com/gpu=0",))
    assert done.code != 0
    assert LIBRARY in done.err


@pytest.mark.parametrize("name", ["nvidia.com-gpu.yaml", "gpus.json"])
def test_what_the_command_writes_podman_reads(site: Site, name: str) -> None:
    path = site.engine.cdi / name
    env = {**os.environ, "PYTHONPATH": SOURCE, "ALIQUOT_STATE_DIR": site.state, "ALIQUOT_SIM": site.name}
    words = ("cdi", "generate", "--out", str(path), "--vendor", "example.com")
    done = forkserver.run([sys.executable, "-m", "aliquot", *words], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    seen = site.seen("example.com/gpu=1:0")
    assert [(g["minor"], len(g["mig"])) for g in seen["gpus"]] == [(1, 1)]
