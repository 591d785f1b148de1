"""Devices that a job can open: only its own instances, through Slurm's control groups over the rendered files.

The tests use real Slurm and an NVML client in the job. The device nodes have no driver: ENXIO means an allowed device,
EPERM is the refusal of the control group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from aliquot.slurm.files.gres_conf import lines
from aliquot.slurm.files.job_devices import GresChoice, OfferedDevices, offered_devices
from aliquot.slurm.files.node_line import gres_value

from .bed import Bed, until
from .cgroups import missing
from .site import Site, gpus

PARTITION = "PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES"
SLICE = "--gres=gpu:a100_3g.20gb:1"
GPU0, GPU1 = "/dev/nvidia0", "/dev/nvidia1"
CAPS = ("/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13")
OTHER_CAPS = ("/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22")
CONFIG, MONITOR = "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"


@pytest.fixture
def site(bed: Bed) -> Iterator[Site]:
    """Start a node with two A100, the first in two 3g.20gb, the second whole."""
    if missing():
        pytest.skip(missing())
    made = Site(bed)
    made.cut(0, "3g.20gb", "3g.20gb")
    yield made
    made.close()


def serve(bed: Bed, *records: tuple[str, OfferedDevices], beside: str = "") -> None:
    """Start a cluster of these records on this host. ``beside`` are more lines of gres.conf for the first record."""
    more = ",nic:fenced:1" if beside else ""
    shapes = [f"CPUs=2 RealMemory=1000 Gres={gres_value(offered)}" for _, offered in records]
    shapes[0] += more
    nodes = [bed.node(name, shape) for (name, _), shape in zip(records, shapes, strict=True)]
    text = "\n".join(line for name, offered in records for line in lines(name, offered))
    types = "GresTypes=gpu,nic" if beside or "Name=nic" in text else ""
    bed.conf("\n".join([*nodes, PARTITION]), gres=f"{text}\n{beside}", more=types, constrain=True)
    bed.controller()
    for name, _ in records:
        bed.slurmd(name)


def no_to(opened: dict[str, str]) -> set[str]:
    return {path for path, answer in opened.items() if answer == "EPERM"}


def test_a_job_opens_its_own_slice_and_none_of_its_neighbours(bed: Bed, site: Site) -> None:
    serve(bed, ("n1", offered_devices(site.read())))
    mine = site.opened(SLICE)
    assert {mine[path] for path in (GPU0, *CAPS)} == {"ENXIO"}
    assert no_to(mine) == {GPU1, *OTHER_CAPS}
    whole = site.opened("--gres=gpu:a100:1")
    assert whole[GPU1] == "ENXIO"
    assert no_to(whole) == {GPU0, *CAPS, *OTHER_CAPS}
    assert no_to(site.opened()) == {GPU0, GPU1, *CAPS, *OTHER_CAPS}


def test_two_jobs_at_once_have_a_mig_device_each_and_see_no_other(bed: Bed, site: Site) -> None:
    found = site.read()
    serve(bed, ("n1", offered_devices(found)))
    job = bed.submit(f"{' '.join(site.client)}; sleep 60", SLICE).out
    out = bed.folder / "out" / job
    until(lambda: out.exists() and "\n" in out.read_text(), "the first job never spoke")
    both = [gpus(out.read_text()), site.seen(SLICE)]
    assert [[len(gpu["mig"]) for gpu in seen] for seen in both] == [[1], [1]]
    uuids = {c.uuid for i in found.gpus[0].instances for c in i.compute_instances}
    assert {seen[0]["mig"][0]["uuid"] for seen in both} == uuids
    assert [(gpu["minor"], gpu["mig"]) for gpu in site.seen("--gres=gpu:a100:1")] == [(1, [])]


def test_after_a_change_jobs_open_the_new_slices(bed: Bed, site: Site) -> None:
    serve(bed, ("n1", offered_devices(site.read())))
    assert site.opened(SLICE)[CAPS[0]] == "ENXIO"
    for name in ("n1", "slurmctld"):
        bed.stop(name)
    changed = offered_devices(site.cut(0, "1g.5gb", "1g.5gb"))
    serve(bed, ("n1", changed))
    # slurmctld remembers the previous state of the node until slurmd has registered.
    until(lambda: bed.run("srun", "--gres=gpu:a100_1g.5gb:1", "true").code == 0, lambda: bed.state("n1"))
    opened = site.opened("--gres=gpu:a100_1g.5gb:1")
    own, other = (device.files for device in changed.devices[:2])
    assert {opened[path] for path in own} == {"ENXIO"}
    assert no_to(opened) == {GPU1, *other[1:]}


def test_the_kernels_modes_alone_keep_a_job_from_changing_instances(bed: Bed, site: Site) -> None:
    # Slurm fences the files of gres.conf, and these two are never in it. Only root may open ``mig/config``. A process
    # that sees the host's /dev may open ``mig/monitor`` and see every instance.
    serve(bed, ("n1", offered_devices(site.read())))
    unprivileged = ["outside", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *site.probe[1:]]
    opened: dict[str, str] = json.loads(bed.ok("srun", SLICE, *unprivileged))
    assert opened[CONFIG] == "EACCES"
    assert opened[MONITOR] == "ENXIO"
    assert no_to(opened) == {GPU1, *OTHER_CAPS}


def test_no_job_opens_the_capabilities_of_administrators(bed: Bed, site: Site) -> None:
    # This includes root's jobs: the node offers all of its GPUs, and its files contain the fence nevertheless.
    serve(bed, ("n1", offered_devices(site.read(), GresChoice(fence=True))))
    opened: dict[str, str] = json.loads(bed.ok("srun", SLICE, *site.probe))
    assert {opened[CONFIG], opened[MONITOR]} == {"EPERM"}
    assert {opened[path] for path in (GPU0, *CAPS)} == {"ENXIO"}


def test_records_of_one_host_are_fenced_from_their_own_gpus_only(bed: Bed, site: Site) -> None:
    # Each slurmd fences the files of its own lines, so with a record for each GPU a job may open the other GPUs. An
    # unused GRES with the neighbours' files fences them. 22.05 requires a GRES type with a plugin.
    found = site.read()
    records = [(f"n1-gpu{gpu.index}", offered_devices(found, GresChoice(gpus=(gpu.pci,)))) for gpu in found.gpus]
    serve(bed, *records)
    opened = site.opened("-w", "n1-gpu0", SLICE)
    assert (opened[GPU1], no_to(opened)) == ("ENXIO", set(OTHER_CAPS))
    for name in list(bed.daemons):
        if name != "munged":
            bed.stop(name)
    serve(bed, *records, beside=f"NodeName=n1-gpu0 Name=nic Type=fenced File={GPU1}\n")
    assert no_to(site.opened("-w", "n1-gpu0", SLICE)) == {GPU1, *OTHER_CAPS}
