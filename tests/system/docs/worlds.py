"""Where pages are typed: each in a world of its own, which is gone afterwards.

| kind | what is there |
|---|---|
| ``sim [TEMPLATE]`` | a state directory; with a template a simulated node ``lab``, which ALIQUOT_SIM names |
| ``cluster TEMPLATE`` | the same beside a stand-in API server, with the real agent and a kubelet double: ``gpu-1`` |
| ``operator TEMPLATE`` | the same, and a ClusterPolicy |
| ``machines`` | the cluster of ``make sandbox-machines`` |
| ``api`` | an API server without anything |
| ``slurm`` | a real Slurm with the dynamic nodes ``n1`` and ``n2``, two simulated A100 each |
| ``libvirt TEMPLATE`` | a real libvirtd on a simulated machine |
| ``podman TEMPLATE`` | Podman beside a simulated node |

In the folder where a page is typed, ``deploy``, ``docs``, ``benchmarks`` and the rest are those of the repository. What
is written below ``/etc``, ``/usr`` and ``/run`` goes to a layer of the page's own, and never reaches the machine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control
from support import forkserver

from . import clusters, daemons
from .pages import HOUSE
from .shell import Shell
from .world import Making, World, program, sim

_GONE = ("ALIQUOT_", "KUBE", "SLURM", "XDG_", "LIBVIRT", "NVIDIA", "PYTEST", "CUDA")
_KEPT = ("ALIQUOT_CACHE_DIR",)

_LAYERS = """
set -e
mount -t tmpfs none "$LAYERS"
for each in etc usr; do
  mkdir "$LAYERS/$each" "$LAYERS/$each.work"
  mount -t overlay none -o "lowerdir=/$each,upperdir=$LAYERS/$each,workdir=$LAYERS/$each.work" "/$each"
done
mount -t tmpfs none /run
eval "$MORE"
exec "$@"
"""


@contextmanager
def shell(kind: tuple[str, ...]) -> Iterator[tuple[Shell, dict[str, str]]]:
    """A shell in a new world, and what stands for placeholders there. Skips the test, with the reason, where that
    world cannot be.
    """
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    world = World(folder, {})
    try:
        for name in ("bin", "home", "work"):
            (folder / name).mkdir()
        _programs(world)
        for each in HOUSE.iterdir():
            if each.name in ("deploy", "docs", "benchmarks", "catalog", "scripts", "src", "tools", "Makefile"):
                (folder / "work" / each.name).symlink_to(each)
        with KINDS[kind[0]](world, kind[1:]):
            made = Shell(folder / "work", _environment(world), world.before or _layers(world))
            try:
                yield made, world.words
            finally:
                made.close()
    finally:
        control.stop(str(folder / "state"))
        shutil.rmtree(folder, ignore_errors=True)


def _layers(world: World) -> tuple[str, ...]:
    """The words that begin a shell with a layer of its own over the machine's files."""
    if reason := missing():
        pytest.skip(reason)
    layers = world.folder / "layers"
    layers.mkdir()
    return ("env", f"LAYERS={layers}", f"MORE={world.more}", "unshare", "--mount", "sh", "-c", _LAYERS, "sh")


@cache
def missing() -> str:
    """Why no page can be typed here; empty where it can."""
    if os.geteuid():
        return "containers need root: pages are typed in a mount namespace"
    with tempfile.TemporaryDirectory(prefix="aq-") as folder:
        words = ["unshare", "--mount", "sh", "-c", _LAYERS, "sh", "true"]
        env = {**os.environ, "LAYERS": folder, "MORE": "true"}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
    return f"no namespaces and control groups: {done.stderr.strip()}" if done.returncode else ""


def _programs(world: World) -> None:
    """``sudo``, which is of no use to who is root already, ``aliquot`` of this Python, and no ``pip``, whose work would
    outlast the page.
    """
    python = shlex.quote(forkserver.python())
    no = 'echo "this page would change the environment of the tests: not_run.yaml" >&2; exit 99'
    for name, text in (("sudo", 'exec "$@"'), ("aliquot", f'exec {python} -m aliquot "$@"'), ("pip", no)):
        program(world.bin / name, text)


def _environment(world: World) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_GONE)}
    path = f"{world.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    fixed = {
        "PATH": path,
        "HOME": str(world.folder / "home"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
        "EDITOR": "true",
        "ALIQUOT_LISTEN": "127.0.0.1:0",
    }
    return {**kept, **fixed, "ALIQUOT_STATE_DIR": str(world.folder / "state"), "COLUMNS": "120", **world.env}


KINDS: dict[str, Making] = {
    "sim": sim,
    "api": clusters.api,
    "cluster": clusters.cluster,
    "operator": clusters.operator,
    "machines": clusters.machines,
    "slurm": daemons.slurm,
    "libvirt": daemons.libvirt,
    "podman": daemons.podman,
}
