"""Connect to a node by its name, with everything that the engine needs.

Without a name, the node is this host. A name is a simulated node: the real NVML backend with that node's shim library
if a C compiler can build it, else a direct connection to the simulator. ``ALIQUOT_BACKEND=shim|direct|smi`` chooses.
``smi`` is the node's nvidia-smi, as for hosts where the driver's library is out of reach.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aliquot.errors import AliquotError, NoDriverError, UsageError
from aliquot.foundation import paths
from aliquot.foundation.callbacks import Report
from aliquot.foundation.paths import node_directories, state_dir
from aliquot.node.connection import Connection

if TYPE_CHECKING:
    from aliquot.core.engine.programs import DriverPrograms
    from aliquot.hardware.kernel.sriov_manage import Tools
    from aliquot.hardware.kernel_files import KernelFiles
    from aliquot.hardware.nvidia_smi.backend import SmiBackend
    from aliquot.node.connection import AnyDriver
    from aliquot.node.driver_unavailable import AvailableDriver
    from aliquot.sim.client import SimClient
    from aliquot.sim.host import SimHost

__all__ = ["Connection", "connect", "state_dir"]

_NO_COMPILER = (
    "no shim library for this simulated node ({reason}): Aliquot connects to the simulator directly. Install a C "
    "compiler (gcc) to exercise the real NVML code"
)


def connect(
    node: str | None = None,
    programs: DriverPrograms | None = None,
    *,
    all_gpus: bool = False,
    state_dir: str | None = None,
    backend: str = "",
    report: Report = lambda _: None,
) -> Connection:
    """Connect to this host (``node`` None) or to a simulated node. ``programs`` are the driver's, for hosts where its
    library is out of reach: this host's library takes precedence, a simulated node's never does. ``all_gpus`` also
    lists GPUs that are not bound to NVIDIA's driver, which can be passed through whole. ``backend`` overrides
    ALIQUOT_BACKEND. ``report`` gets sentences for stderr. Raises NoDriverError, UsageError for a node that does not
    exist, and errors of the driver.
    """
    if node is None:
        return _local_host(report, programs, all_gpus)
    return _simulated_node(node, programs, all_gpus, state_dir or paths.state_dir(), backend, report)


def _simulated_node(
    node: str,
    programs: DriverPrograms | None,
    all_gpus: bool,
    base: str,
    backend: str,
    report: Report,
) -> Connection:
    from aliquot.sim import lifecycle as control
    from aliquot.sim.client import SimClient

    sim = SimClient(base, node)
    folder = control.folder(base, node)
    from aliquot.hardware.kernel.backend import Kernel
    from aliquot.hardware.kernel.sriov_manage import DriverTools
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.sim.files import SimFiles

    driver_root = os.path.join(folder, "driver")
    tools: Tools = DriverTools(driver_root) if programs is None else _tools(programs)
    kernel = Kernel(
        SimFiles(sim), tools, folder, lambda: str(sim.show()["boot_id"]), report=report, all_drivers=all_gpus
    )
    chosen = backend or _backend_from_environment()
    driver: AnyDriver
    if programs is not None or chosen == "smi":
        from aliquot.hardware.programs import LocalPrograms

        driver = _smi(programs or LocalPrograms(driver_root), node, kernel.files)
    else:
        driver = _driver(base, node, sim, report, chosen)
    return Connection(node, NodeBackend(driver, kernel), (folder, folder), sim, all_gpus=all_gpus)


def _local_host(report: Report, programs: DriverPrograms | None, all_gpus: bool) -> Connection:
    """Connect to this host. If its driver does not answer, but some GPUs are passed through, connect to those."""
    from aliquot.hardware.kernel.backend import Kernel
    from aliquot.hardware.kernel.sriov_manage import DriverTools
    from aliquot.hardware.kernel_files import RealFiles
    from aliquot.hardware.node_backend import NodeBackend
    from aliquot.hardware.nvml.backend import NvmlBackend
    from aliquot.hardware.state.journal import boot_id
    from aliquot.node.driver_root import driver_root

    name, root = os.uname().nodename, driver_root()
    places = node_directories()
    tools: Tools = DriverTools(root, chroot=True)
    if programs is not None and not tools.sriov_manage:
        tools = _tools(programs)
    kernel = Kernel(RealFiles(), tools, places[1], boot_id, report=report, all_drivers=all_gpus)
    fallback_programs = programs

    def open_driver() -> AvailableDriver:
        nonlocal fallback_programs
        try:
            by_library = NvmlBackend(node=name, driver_root=root)
        except NoDriverError as error:
            if programs is None:
                raise
            return _by_programs(programs, name, kernel.files, error)
        fallback_programs = None
        return by_library

    driver: AnyDriver
    try:
        driver = open_driver()
    except NoDriverError as error:
        if not kernel.passthrough():
            raise
        from aliquot.node.driver_unavailable import UnavailableDriver

        driver = UnavailableDriver(name, error, open_driver, kernel_only=all_gpus)
    return Connection(name, NodeBackend(driver, kernel), places, programs=fallback_programs, all_gpus=all_gpus)


def _by_programs(programs: DriverPrograms, node: str, files: KernelFiles, library: NoDriverError) -> SmiBackend:
    """Connect to the driver through its programs, because its library does not answer. Raises NoDriverError with both
    reasons.
    """
    try:
        return _smi(programs, node, files)
    except NoDriverError as error:
        error.details += (f"through its library: {library.brief}",)
        raise


def simulated_host(node: str) -> SimHost:
    """Return the host of a simulated node, without opening its GPUs. Raises UsageError for a node that does not
    exist.
    """
    from aliquot.sim.client import SimClient
    from aliquot.sim.host import SimHost

    return SimHost(SimClient(paths.state_dir(), node))


def _tools(programs: DriverPrograms) -> Tools:
    from aliquot.hardware.nvidia_smi.host import ProgramTools

    return ProgramTools(programs)


def _smi(programs: DriverPrograms, node: str, files: KernelFiles) -> SmiBackend:
    """Return the driver through nvidia-smi; the kernel's files list its GPUs."""
    from aliquot.hardware.kernel.pci import driver_gpus
    from aliquot.hardware.nvidia_smi.backend import SmiBackend

    return SmiBackend(programs, node, lambda: driver_gpus(files))


def _backend_from_environment() -> str:
    chosen = os.environ.get("ALIQUOT_BACKEND", "")
    if chosen not in ("", "shim", "direct", "smi"):
        raise UsageError(f"invalid ALIQUOT_BACKEND {chosen!r}: use shim, direct or smi")
    return chosen


def _driver(base: str, node: str, sim: SimClient, report: Report, chosen: str) -> AvailableDriver:
    from aliquot.sim import lifecycle as control

    if chosen != "direct":
        try:
            library = control.library(base, node)
        except AliquotError as error:
            if chosen == "shim":
                raise
            report(_NO_COMPILER.format(reason=error.brief))
        else:
            from aliquot.hardware.nvml.backend import NvmlBackend

            return NvmlBackend(library, node, proc_root=None)
    from aliquot.node.simulated.backend import SimBackend

    return SimBackend(sim)
