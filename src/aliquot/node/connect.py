"""From a node's name to everything that the engine needs to work on it.

No name is the machine itself. A name is a simulated node: the real NVML backend over that node's shim library where
there is a C compiler to build it, else the simulator spoken to directly. ``ALIQUOT_BACKEND=shim|direct|smi`` chooses;
``smi`` is the node's nvidia-smi, as where the driver's library is out of reach.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from aliquot.errors import AliquotError, NoDriverError, UsageError
from aliquot.foundation import paths
from aliquot.foundation.paths import node_directories, state_dir
from aliquot.node.connection import Connection

if TYPE_CHECKING:
    from aliquot.core.engine.programs import Programs
    from aliquot.hardware.kernel.sriov_manage import Tools
    from aliquot.hardware.kernel_files import Files
    from aliquot.hardware.nvidia_smi.backend import SmiBackend
    from aliquot.node.connection import AnyDriver
    from aliquot.sim.host import SimHost
    from aliquot.sim.lifecycle import Node

__all__ = ["Connection", "connect", "state_dir"]

_NO_COMPILER = (
    "no shim library for this simulated node ({reason}): speaking to the simulator directly. The real NVML code is "
    "rehearsed only with a C compiler (gcc)"
)


def connect(
    node: str | None = None,
    programs: Programs | None = None,
    *,
    everything: bool = False,
    state_dir: str | None = None,
    through: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> Connection:
    """The machine itself (``node`` None) or a simulated node. ``programs`` are the driver's, for where its library is
    out of reach: this machine's library is used where there is one, a simulated node's never. ``everything`` lists GPUs
    that NVIDIA's driver has not taken, too: whole they can be handed out. ``through`` goes before ALIQUOT_BACKEND.
    ``say`` gets sentences for stderr. Raises NoDriverError, UsageError for a node that is not there, and whatever
    opening the driver raises.
    """
    if node is None:
        return _machine(say, programs, everything)
    from aliquot.sim import lifecycle as control

    base = state_dir or paths.state_dir()
    sim = control.Node(base, node)
    folder = control.folder(base, node)
    from aliquot.hardware.kernel.backend import Kernel
    from aliquot.hardware.kernel.sriov_manage import DriverTools
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.sim.files import SimFiles

    driver_root = os.path.join(folder, "driver")
    tools: Tools = DriverTools(driver_root) if programs is None else _tools(programs)
    kernel = Kernel(SimFiles(sim), tools, folder, lambda: str(sim.show()["boot_id"]), say=say, everything=everything)
    chosen = through or _chosen()
    driver: AnyDriver
    if programs is not None or chosen == "smi":
        from aliquot.hardware.programs import LocalPrograms

        driver = _smi(programs or LocalPrograms(driver_root), node, kernel.files)
    else:
        driver = _driver(base, node, sim, say, chosen)
    return Connection(node, NodeBackend(driver, kernel), (folder, folder), sim)


def _machine(say: Callable[[str], None], programs: Programs | None, everything: bool) -> Connection:
    """This machine. Where its driver does not answer although there are GPUs that it does not have, those."""
    from aliquot.hardware.kernel.backend import Kernel
    from aliquot.hardware.kernel.sriov_manage import DriverTools
    from aliquot.hardware.kernel_files import RealFiles
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.hardware.nvml.backend import NvmlBackend
    from aliquot.hardware.state.journal import boot_id

    name, root = os.uname().nodename, os.environ.get("ALIQUOT_DRIVER_ROOT") or "/"
    places = node_directories()
    tools: Tools = DriverTools(root, chroot=True)
    if programs is not None and not tools.sriov_manage:
        tools = _tools(programs)
    kernel = Kernel(RealFiles(), tools, places[1], boot_id, say=say, everything=everything)
    elsewhere = programs

    def opened() -> AnyDriver:
        nonlocal elsewhere
        try:
            by_library = NvmlBackend(node=name, driver_root=root)
        except NoDriverError as error:
            if programs is None:
                raise
            return _by_programs(programs, name, kernel.files, error)
        elsewhere = None
        return by_library

    driver: AnyDriver
    try:
        driver = opened()
    except NoDriverError as error:
        if not kernel.passthrough():
            raise
        from aliquot.node.driver_unavailable import Away

        driver = Away(name, error, opened, alone=everything)
    return Connection(name, NodeBackend(driver, kernel), places, programs=elsewhere)


def _by_programs(programs: Programs, node: str, files: Files, library: NoDriverError) -> SmiBackend:
    """The driver through its programs, where its library does not answer. Raises NoDriverError with both reasons."""
    try:
        return _smi(programs, node, files)
    except NoDriverError as error:
        error.details += (f"through its library: {library.brief}",)
        raise


def simulated_host(node: str) -> SimHost:
    """The machine around a simulated node, without opening its GPUs. Raises UsageError for a node that is not there."""
    from aliquot.sim.host import SimHost
    from aliquot.sim.lifecycle import Node

    return SimHost(Node(paths.state_dir(), node))


def _tools(programs: Programs) -> Tools:
    from aliquot.hardware.nvidia_smi.sriov_manage import ProgramTools

    return ProgramTools(programs)


def _smi(programs: Programs, node: str, files: Files) -> SmiBackend:
    """The driver through nvidia-smi; the kernel's files say which GPUs it has."""
    from aliquot.hardware.kernel.pci import driver_gpus
    from aliquot.hardware.nvidia_smi.backend import SmiBackend

    return SmiBackend(programs, node, lambda: driver_gpus(files))


def _chosen() -> str:
    chosen = os.environ.get("ALIQUOT_BACKEND", "")
    if chosen not in ("", "shim", "direct", "smi"):
        raise UsageError(f"ALIQUOT_BACKEND is {chosen!r}: it can be shim, direct or smi")
    return chosen


def _driver(base: str, node: str, sim: Node, say: Callable[[str], None], chosen: str) -> AnyDriver:
    from aliquot.sim import lifecycle as control

    if chosen != "direct":
        try:
            library = control.library(base, node)
        except AliquotError as error:
            if chosen == "shim":
                raise
            say(_NO_COMPILER.format(reason=error.brief))
        else:
            from aliquot.hardware.nvml.backend import NvmlBackend

            return NvmlBackend(library, node, proc_root=None)
    from aliquot.node.simulated.backend import SimBackend

    return SimBackend(sim)
