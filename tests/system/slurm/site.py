"""A simulated node whose GPUs are in a Slurm bed: its inventory, its device nodes, and NVML clients in jobs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

from .bed import Bed

CLIENT = Path(__file__).resolve().parent.parent / "containers" / "inside.py"
PROBE = """
import errno, glob, json, os
def opened(path):
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "OPEN"
print(json.dumps({path: opened(path) for path in glob.glob("/dev/nvidia*") + glob.glob("/dev/nvidia-caps/*")
                  if not os.path.isdir(path)}))
"""


class Site:
    """A simulated node named ``name``. Call ``close`` at the end."""

    def __init__(self, bed: Bed, template: str = "a100-sxm4-40gb*2", name: str = "n1") -> None:
        self.bed = bed
        self.name = name
        self.state = str(bed.folder / "sim")
        control.start(self.state, template, name)
        self.node = SimClient(self.state, name)
        self.library = Path(control.library(self.state, name))
        (bed.folder / "probe.py").write_text(PROBE)

    def read(self) -> Inventory:
        """Read the node's inventory and create its device nodes."""
        with connect(self.name, state_dir=self.state) as connection:
            found = connection.backend.read()
        self.bed.devices_of(found)
        return found

    def cut(self, gpu: int, *profiles: str) -> Inventory:
        """Replace the instances of a GPU."""
        self.node.set_mode(gpu, True)
        for number in [g.id for g in self.read().gpus[gpu].instances]:
            self.node.destroy(gpu, number)
        for profile in profiles:
            self.node.create(gpu, profile)
        return self.read()

    def apply(self, gpu: int, request: str) -> Inventory:
        """Run ``aliquot apply --gpu N --mig REQUEST``."""
        words = ("apply", "--sim", self.name, "--gpu", str(gpu), "--mig", request)
        done = self.bed.aliquot(*words, env={"ALIQUOT_STATE_DIR": self.state})
        assert done.code == 0, done
        return self.read()

    @property
    def probe(self) -> list[str]:
        """Command for a job that prints, as JSON, the result of opening each node: ENXIO is allowed, EPERM denied."""
        return ["outside", sys.executable, str(self.bed.folder / "probe.py")]

    def opened(self, *options: str) -> dict[str, str]:
        """Run ``probe`` as a separate job."""
        found: dict[str, str] = json.loads(self.bed.ok("srun", *options, *self.probe))
        return found

    @property
    def client(self) -> list[str]:
        """Command for a job that prints, as JSON, what a client of this node's NVML observes there."""
        env = {"LD_LIBRARY_PATH": str(self.library.parent), "ALIQUOT_SIM_DEV_ROOT": "/"}
        return ["outside", "env", *(f"{key}={value}" for key, value in env.items()), sys.executable, str(CLIENT)]

    def seen(self, *options: str) -> list[dict[str, Any]]:
        """Return the GPUs, with their MIG devices, that ``client`` observes as a separate job."""
        return gpus(self.bed.ok("srun", *options, *self.client))

    def detection(self) -> tuple[dict[str, str], str]:
        """Return what AutoDetect=nvml needs to find this node's GPUs: the environment of slurmd and lines for
        slurm.conf. Gives the machine the kernel's list of capabilities.
        """
        link = self.library.with_name("libnvidia-ml.so")
        if not link.exists():
            link.symlink_to(self.library.name)  # the name that 22.05 opens
        place = self.bed.folder / "driver"
        (place / "nvidia-caps").mkdir(parents=True)
        (place / "nvidia-caps/mig-minors").write_text(_minors(len(self.read().gpus)))
        for root in {"", self.bed.release.root.rstrip("/")}:
            self.bed.ok("mount", "--bind", str(place), f"{root}/proc/driver")
        plugins = self.bed.release.plugins
        return {"LD_LIBRARY_PATH": str(self.library.parent)}, f"PluginDir={plugins}" if plugins else ""

    def close(self) -> None:
        self.node.close()
        control.stop(self.state)


def gpus(output: str) -> list[dict[str, Any]]:
    """Return the GPUs in the output of ``client``."""
    return msgspec.convert(msgspec.json.decode(output)["gpus"], list[dict[str, Any]])


def _minors(gpus: int) -> str:
    """Return ``/proc/driver/nvidia-caps/mig-minors`` with every possible instance (MIG User Guide)."""
    rows = ["config 1", "monitor 2"]
    for gpu in range(gpus):
        for gi in range(15):
            minor = 3 + 135 * gpu + 9 * gi
            rows.append(f"gpu{gpu}/gi{gi}/access {minor}")
            rows += [f"gpu{gpu}/gi{gi}/ci{ci}/access {minor + 1 + ci}" for ci in range(8)]
    return "\n".join([*rows, ""])
