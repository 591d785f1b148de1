"""A case for every refusal of the planner: a simulated node, commands that prepare it, and the refused command.

``messages`` runs a case by Aliquot's own command line, in this process, in a state directory of its own.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aliquot.core.model.desired import PlanRule


class Case(NamedTuple):
    """A refusal. ``before`` are commands that prepare the node; ``files`` are written first, by name."""

    rule: PlanRule
    node: str
    command: str
    before: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


A100, A30, PRO, H100 = "a100-sxm4-40gb", "a30", "rtx-pro-6000-blackwell-server-edition", "h100-80gb-hbm3"
TWO_SELECT = """\
version: aliquot/v1
configs:
  x:
    - gpus: {index: 0}
      mig: {1g.5gb: 1}
    - gpus: {product: A100-SXM4-40GB}
      mig: {7g.40gb: 1}
"""
COMPUTE = """\
version: aliquot/v1
configs:
  x:
    - gpus: {index: 0}
      mig: [{profile: 3g.20gb, compute: [2c.3g.20gb, 2c.3g.20gb]}]
"""
TWICE = """\
version: aliquot/v1
configs:
  x:
    - gpus: {index: 0}
      vgpu: {A2-4Q: 1, "id:746": 1}
"""
ELSEWHERE = """\
version: aliquot/v1
configs:
  x:
    - gpus: {product: H100-80GB-HBM3}
      mig: {1g.10gb: 1}
"""
NO_CUDA = """\
version: aliquot/v1
configs:
  x:
    - gpus: {index: 0}
      vgpu: {A2-2B: 1}
      vgpu-parameters: {enable_uvm: true}
"""
FIXED_MIXED = """\
version: aliquot/v1
configs:
  x:
    - gpus: {index: 0}
      vgpu: {L40S-8Q: 1, L40S-16Q: 1}
      mixed-size: true
      scheduler: fixed-share
"""
CASES = (
    Case("NOTHING_MATCHES", A100, "aliquot plan -f x.yaml", files=(("x.yaml", ELSEWHERE),)),
    Case("TWICE", "a2:mdev", "aliquot plan -f x.yaml", files=(("x.yaml", TWICE),)),
    Case("PER_VM", "a2:mdev", "aliquot libvirt xml --vgpu A2-4C --count 2", ("aliquot apply --gpu 0 --vgpu A2-4C:2",)),
    Case(
        "SERIES",
        "l40s:mdev:compute",
        "aliquot libvirt xml --vgpu L40S-8C --vgpu L40S-8Q",
        ("aliquot apply --gpu 0 --vgpu L40S-8C,L40S-8Q",),
    ),
    Case("UNKNOWN_PROFILE", A100, "aliquot plan --gpu 0 --mig 3g.40gb"),
    Case("BAD_PLACEMENT", A100, "aliquot plan --gpu 0 --mig 3g.20gb@2"),
    Case("MAX_INSTANCES", A100, "aliquot plan --gpu 0 --mig 4g.20gb:2"),
    Case("COMPUTE_SLICES", A100, "aliquot plan --gpu 0 --mig 4g.20gb,2g.10gb:2"),
    Case("PLACEMENT", A100, "aliquot plan --gpu 0 --mig 3g.20gb:2,1g.5gb"),
    Case("ENGINES", PRO, "aliquot plan --gpu 0 --mig 1g.24gb+me.all,1g.24gb"),
    Case("COMPUTE_DOES_NOT_FIT", A100, "aliquot plan -f x.yaml", files=(("x.yaml", COMPUTE),)),
    Case(
        "HELD",
        A100,
        "aliquot plan --gpu 0 --mig 7g.40gb",
        ("aliquot apply --gpu 0 --mig 1g.5gb@0", "aliquot sim hold 0 7"),
    ),
    Case("NOT_CAPABLE", "tesla-t4", "aliquot plan --gpu 0 --mig 1g.5gb"),
    Case("NO_SUCH_GPU", A100, "aliquot plan --gpu 7 --mig 1g.5gb"),
    Case(
        "NO_SUCH_INSTANCE",
        A100,
        "aliquot plan --gpu 0 --remove 2g.10gb",
        ("aliquot apply --gpu 0 --mig 1g.5gb:2",),
    ),
    Case("OVERLAP", A100, "aliquot plan -f x.yaml", files=(("x.yaml", TWO_SELECT),)),
    Case("GPU_LOST", A100, "aliquot plan --gpu 0 --mig 1g.5gb", ("aliquot sim fault lost gpu=0",)),
    Case("NO_VGPU_DRIVER", "a2", "aliquot plan --gpu 0 --vgpu A2-4Q"),
    Case("UNKNOWN_TYPE", "a2:mdev", "aliquot libvirt xml --vgpu A2-5Q", ("aliquot vgpu enable 0",)),
    Case("WRONG_CARD", "a2:mdev", "aliquot plan --gpu 0 --vgpu L40S-8Q"),
    Case("TYPE_WITHOUT_ID", "a2:mdev", "aliquot plan --gpu 0 --vgpu A2-3B"),
    Case("EQUAL_SIZE", "l40s:vfio", "aliquot plan --gpu 0 --vgpu L40S-8Q,L40S-16Q"),
    Case("MIXED_SIZE", "tesla-t4:mdev", "aliquot plan --gpu 0 --vgpu T4-4Q,T4-8Q --mixed-size"),
    Case("PARAMETER", "a2:mdev", "aliquot plan -f x.yaml", files=(("x.yaml", NO_CUDA),)),
    Case("SCHEDULER", "l40s:vfio", "aliquot plan -f x.yaml", files=(("x.yaml", FIXED_MIXED),)),
    Case("MAX_VGPUS", "a2:mdev", "aliquot plan --gpu 0 --vgpu A2-8Q:3"),
    Case("MIG_TYPE", f"{H100}:vfio", "aliquot plan --gpu 0 --vgpu H100XM-1-10C,H100XM-80C"),
    Case("NO_INSTANCE", f"{H100}:vfio", "aliquot plan --gpu 0 --vgpu H100XM-3-40C:2,H100XM-1-10C"),
    Case("NO_FUNCTION", "l40s:vfio", "aliquot passthrough enable 0000:01:00.4", ("aliquot vgpu enable 0",)),
    Case("NO_IOMMU", "l40s:vfio:noiommu", "aliquot plan --gpu 0 --passthrough on"),
    Case("FABRIC", "h200:vfio*8", "aliquot plan --gpu 0 --vgpu H200X-141C"),
    Case("IOMMU_GROUP", "l40s:vfio:grouped", "aliquot plan --gpu 0 --passthrough on"),
    Case(
        "FUNCTIONS_IN_USE",
        "l40s:vfio",
        "aliquot plan --gpu 0 --passthrough on",
        ("aliquot apply --gpu 0 --vgpu L40S-8Q",),
    ),
    Case("MODE", A100, "aliquot explain 3g.20gb"),
)


def messages(case: Case) -> str:
    """Return what the command prints on both streams. Raises AssertionError if a command before it fails."""
    from aliquot.cli.main import main
    from aliquot.sim import lifecycle as control

    with tempfile.TemporaryDirectory(prefix="aq-") as folder, _settings(folder):
        control.start(folder, case.node, "lab")
        try:
            for name, text in case.files:
                Path(name).write_text(text)
            for line in case.before:
                code, text = _typed(main, line)
                assert code == 0, (line, text)
            return _typed(main, case.command)[1]
        finally:
            control.stop(folder)


def _typed(main: object, line: str) -> tuple[int, str]:
    assert callable(main)
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(shlex.split(line)[1:])
    return int(code), out.getvalue().rstrip()


@contextlib.contextmanager
def _settings(folder: str) -> Iterator[None]:
    wanted = {"ALIQUOT_STATE_DIR": folder, "ALIQUOT_SIM": "lab", "ALIQUOT_BACKEND": "direct", "NO_COLOR": "1"}
    before, here = dict(os.environ), os.getcwd()
    os.environ.update(wanted)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)


UNSHOWN: dict[PlanRule, str] = {
    "AT_MOST": "in every known table MAX_INSTANCES or ENGINES applies first",
    "EXCLUDES": "in every known table ENGINES applies first",
    "COMPUTE_INSTANCES": "COMPUTE_DOES_NOT_FIT applies first, when a file is read",
    "COMPUTE_PLACEMENT": "only a GPU that loses its instances on the way to vGPUs gets them back at placements, and "
    "drivers before R525 choose those of compute instances themselves",
    "NO_TABLE": "simulated nodes are made from the tables, so each has one",
    "NO_VFIO": "a simulated node has the VFIO modules",
    "PASSTHROUGH": "a request takes a GPU back from passthrough; files of other tools do not change it, with a note",
}


def machines() -> dict[str, str]:
    """Return rule and message of the devices that one virtual machine may not hold together, on a simulated node."""
    from aliquot.core.model.inventory import Inventory
    from aliquot.core.planner.vgpu import vm_rules as vm
    from aliquot.node.connect import connect
    from aliquot.sim import lifecycle as control

    with tempfile.TemporaryDirectory(prefix="aq-") as folder, _settings(folder):
        control.start(folder, "a2:mdev,l40s:mdev:compute", "lab")
        try:
            with connect("lab", state_dir=folder) as connection:
                node: Inventory = connection.backend.read()
        finally:
            control.stop(folder)
    a2, l40s = node.gpus
    tables = [table for table in map(node.vgpu_table, node.gpus) if table is not None]
    types = {each.short: each for table in tables for each in table.types}
    quarter, compute = types["A2-4Q"], types["A2-4C"]
    sets = (
        (vm.VmDevice(a2, quarter, node="n1"), vm.VmDevice(a2, quarter, node="n2")),
        (vm.VmDevice(a2, quarter, ramfb=True), vm.VmDevice(a2, quarter, ramfb=True)),
        (vm.VmDevice(a2, compute, display=True),),
        (vm.VmDevice(a2, compute), vm.VmDevice(a2, compute)),
        (vm.VmDevice(a2, quarter), vm.VmDevice(l40s, types["L40S-8Q"])),
    )
    found: dict[str, str] = {}
    for devices in sets:
        for blocker in vm.check(devices):
            found.setdefault(blocker.rule, blocker.message)
    return found
