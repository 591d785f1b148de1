"""Environments with real daemons: Slurm, libvirtd, Podman."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .environment import Environment, program, sim

_OTHERS = ("docker", "dockerd", "containerd", "nerdctl", "nvidia-ctk")


@contextmanager
def slurm(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    from system.slurm.applying import Host
    from system.slurm.bed import Bed
    from system.slurm.boarded import BoardCluster
    from system.slurm.demanded import Cluster
    from system.slurm.release import RELEASES

    release = next((r for r in RELEASES if not r.missing), None)
    if release is None:
        pytest.skip(RELEASES[0].missing)
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    bed = Bed(release, folder)
    try:
        cluster: Cluster | BoardCluster
        if words == ("boards",):
            cluster = BoardCluster(bed, board=False)
            host: Host = cluster.host
        else:
            cluster = Cluster(bed, "n1", "n2", more="GresTypes=gpu,nic")
            host = cluster.hosts["n1"]
        environment.before = tuple(bed.inside())
        path = f"{environment.bin}:{bed.env['PATH']}"
        slurm = {"SLURM_CONF": str(bed.etc / "slurm.conf"), "SLURMD_NODENAME": "n1", "PATH": path}
        environment.env.update(host.env | slurm)
        environment.words = {"/etc/aliquot/slurm.yaml": str(cluster.settings), "/etc/slurm": str(bed.etc)}
        yield
    finally:
        bed.aliquot("sim", "stop", "--all", env={"ALIQUOT_STATE_DIR": str(folder / "aliquot")})
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def libvirt(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    from system.libvirt import bed
    from system.libvirt.conftest import CACHE
    from system.libvirt.domains import domain

    if reason := bed.missing():
        pytest.skip(reason)
    with bed.made(words[0], CACHE) as made:
        state = str(Path(made.root).with_name("state"))
        environment.env.update(LIBVIRT_DEFAULT_URI=made.uri, ALIQUOT_SIM="bed", ALIQUOT_STATE_DIR=state)
        (environment.folder / "work/win11.xml").write_text(domain("win11"))
        made.virsh("define", str(environment.folder / "work/win11.xml"))
        yield


@contextmanager
def podman(environment: Environment, words: tuple[str, ...]) -> Iterator[None]:
    from system.containers.podman import IMAGE, Podman, python, system, unusable

    if reason := unusable():
        pytest.skip(reason)
    engine = Podman(environment.folder / "podman", events="file")
    try:
        engine.build()
        engine.program(environment.bin / "podman")
        inside = program(environment.folder / "nvidia-smi", f'exec {python()} /opt/nvml/listing.py "$@"')
        listing = str(Path(__file__).with_name("listing.py"))
        mounts = system() | {"/opt/nvml/listing.py": listing, "/bin/nvidia-smi": str(inside)}
        limits = "--network none --ulimit nofile=1024:2048 --ulimit nproc=4096:4096 --env PYTHONPATH=/opt/nvml"
        volumes = " ".join(f"--volume {host}:{inside}:ro" for inside, host in mounts.items())
        environment.words = {"IMAGE": f"{limits} {volumes} {IMAGE}"}
        others = " ".join(f"{folder}/{name}" for folder in ("/usr/bin", "/usr/local/bin") for name in _OTHERS)
        environment.more = (
            f"mkdir /run/cdi; mount --bind {engine.cdi} /run/cdi; rm -f {others}"  # in the page's overlay
        )
        environment.env.update(engine.environment)
        with sim(environment, words):
            yield
    finally:
        engine.close()
