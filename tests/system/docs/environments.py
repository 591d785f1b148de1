"""Environments in which pages are typed. Each page gets a new one, which is removed afterwards.

- ``sim [TEMPLATE]``: a state directory; with a template also a simulated node ``lab``, named by ALIQUOT_SIM
- ``cluster TEMPLATE``: the same with a stand-in API server, the real agent and a kubelet double, on node ``gpu-1``
- ``operator TEMPLATE``: the same with a ClusterPolicy
- ``vgpus TEMPLATE``: the same with the agent of a node for VMs
- ``machines``: the cluster of ``make sandbox-machines``
- ``api``: an empty API server
- ``slurm``: a real Slurm with the dynamic nodes ``n1`` and ``n2``, with two simulated A100 each
- ``slurm boards``: a real Slurm with ``n1`` in slurm.conf, which can become a slot board
- ``libvirt TEMPLATE``: a real libvirtd on a simulated host
- ``podman TEMPLATE``: Podman with a simulated node

In a page's working folder, ``deploy``, ``docs``, ``benchmarks`` and the rest are those of the repository. Files that
are written below ``/etc``, ``/opt``, ``/usr`` and ``/run`` go to an overlay of the page and never reach the host.
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
from .environment import Environment, Making, program, sim
from .pages import HOUSE
from .shell import Shell

_GONE = ("ALIQUOT_", "KUBE", "SLURM", "XDG_", "LIBVIRT", "NVIDIA", "PYTEST", "CUDA")
_KEPT = ("ALIQUOT_CACHE_DIR",)

_LAYERS = """
set -e
mount -t tmpfs none "$LAYERS"
for each in etc opt usr; do
  mkdir "$LAYERS/$each" "$LAYERS/$each.work"
  mount -t overlay none -o "lowerdir=/$each,upperdir=$LAYERS/$each,workdir=$LAYERS/$each.work" "/$each"
done
mount -t tmpfs none /run
eval "$MORE"
exec "$@"
"""


@contextmanager
def shell(kind: tuple[str, ...]) -> Iterator[tuple[Shell, dict[str, str]]]:
    """Start a shell in a new environment. Yields the shell and the values of the placeholders. Skips the test, with the
    reason, if the environment cannot be set up.
    """
    folder = Path(tempfile.mkdtemp(prefix="aq-", dir="/tmp"))
    environment = Environment(folder, {})
    try:
        for name in ("bin", "home", "work"):
            (folder / name).mkdir()
        _programs(environment)
        for each in HOUSE.iterdir():
            if each.name in ("deploy", "docs", "benchmarks", "catalog", "scripts", "src", "tools", "Makefile"):
                (folder / "work" / each.name).symlink_to(each)
        with KINDS[kind[0]](environment, kind[1:]):
            made = Shell(folder / "work", _environment(environment), environment.before or _layers(environment))
            try:
                yield made, environment.words
            finally:
                made.close()
    finally:
        control.stop(str(folder / "state"))
        shutil.rmtree(folder, ignore_errors=True)


def _layers(environment: Environment) -> tuple[str, ...]:
    """Return the words that start a shell with an overlay over the host's files."""
    if reason := missing():
        pytest.skip(reason)
    layers = environment.folder / "layers"
    layers.mkdir()
    return ("env", f"LAYERS={layers}", f"MORE={environment.more}", "unshare", "--mount", "sh", "-c", _LAYERS, "sh")


@cache
def missing() -> str:
    """Return why no page can be typed here, or "" if one can."""
    if os.geteuid():
        return "containers need root: pages are typed in a mount namespace"
    with tempfile.TemporaryDirectory(prefix="aq-") as folder:
        words = ["unshare", "--mount", "sh", "-c", _LAYERS, "sh", "true"]
        env = {**os.environ, "LAYERS": folder, "MORE": "true"}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
    return f"no namespaces and control groups: {done.stderr.strip()}" if done.returncode else ""


def _programs(environment: Environment) -> None:
    """Write replacements for programs: ``sudo`` runs its command directly, ``aliquot`` uses this Python, and ``pip``
    refuses, because its changes would outlast the page.
    """
    python = shlex.quote(forkserver.python())
    no = 'echo "this page would change the environment of the tests: not_run.yaml" >&2; exit 99'
    for name, text in (("sudo", 'exec "$@"'), ("aliquot", f'exec {python} -m aliquot "$@"'), ("pip", no)):
        program(environment.bin / name, text)


def _environment(environment: Environment) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or not k.startswith(_GONE)}
    path = f"{environment.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    fixed = {
        "PATH": path,
        "HOME": str(environment.folder / "home"),
        "TERM": "dumb",
        "NO_COLOR": "1",
        "LANG": "C.UTF-8",
        "EDITOR": "true",
        "ALIQUOT_LISTEN": "127.0.0.1:0",
    }
    return {
        **kept,
        **fixed,
        "ALIQUOT_STATE_DIR": str(environment.folder / "state"),
        "COLUMNS": "120",
        **environment.env,
    }


KINDS: dict[str, Making] = {
    "sim": sim,
    "api": clusters.api,
    "cluster": clusters.cluster,
    "operator": clusters.operator,
    "vgpus": clusters.vgpus,
    "machines": clusters.machines,
    "slurm": daemons.slurm,
    "libvirt": daemons.libvirt,
    "podman": daemons.podman,
}
