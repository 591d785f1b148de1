"""The driver's calls by name: arguments in, the text of the answer out. One function per NVML call.

An address has three numbers: GPU index, GPU instance, compute instance, each -1 if not given. A name is NVML's without
its prefix and version suffix.
"""

from __future__ import annotations

from collections.abc import Callable

from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.sim import codes
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver import topology as place
from aliquot.sim.driver import usage
from aliquot.sim.driver.compute import SimInstance
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import WHOLE
from aliquot.sim.template import mig_uuid

MIB = 1 << 20

Args = list[int]
SystemCall = Callable[[SimNode, SimSession, Args, str], str]
DeviceCall = Callable[[SimNode, SimSession, SimGpu, Args], str]

IDENTITY = frozenset(
    {"DeviceGetName", "DeviceGetUUID", "DeviceGetPciInfo", "DeviceGetIndex", "DeviceGetMinorNumber", "DeviceGetSerial"}
)
"""Calls that still work for a GPU that fell off the bus (an estimate: the library read the values at its start)."""


def numbers(*values: int) -> str:
    return " ".join(map(str, values))


# -- the system


def _handle_by_index(node: SimNode, _s: SimSession, args: Args, _t: str) -> str:
    if not 0 <= args[0] < len(node.visible):
        raise NvmlRefusalError(codes.INVALID_ARGUMENT)
    return f"{node.visible[args[0]].state.index} -1 -1"


def _handle_by_uuid(node: SimNode, _s: SimSession, _a: Args, text: str) -> str:
    for gpu in node.visible:
        if gpu.state.uuid == text:
            return f"{gpu.state.index} -1 -1"
        for gi, ci in gpu.mig_devices():
            if mig_uuid(gpu.state, gi, ci, gpu.driver_major) == text:
                return f"{gpu.state.index} {gi} {ci}"
    raise NvmlRefusalError(codes.NOT_FOUND)


def _handle_by_pci(node: SimNode, _s: SimSession, _a: Args, text: str) -> str:
    parts = text.lower().split(":")
    domain = parts[0] if len(parts) == 3 else "0"
    rest = ":".join(parts[-2:])
    rest += "" if "." in rest else ".0"
    for gpu in node.visible:
        own, _, place = gpu.state.pci.partition(":")
        if place == rest and int(own, 16) == int(domain, 16):
            return f"{gpu.state.index} -1 -1"
    raise NvmlRefusalError(codes.NOT_FOUND)


def _handle_by_serial(node: SimNode, _s: SimSession, _a: Args, text: str) -> str:
    for gpu in node.visible:
        if _serial_number(gpu) == text:
            return f"{gpu.state.index} -1 -1"
    raise NvmlRefusalError(codes.NOT_FOUND)


def _process_name(node: SimNode, _s: SimSession, args: Args, _t: str) -> str:
    for gpu in node.gpus:
        for process in gpu.state.processes:
            if process.pid == args[0]:
                return "|" + process.name
    raise NvmlRefusalError(codes.NOT_FOUND)


def cuda_version(node: SimNode) -> int:
    """Return the newest CUDA version of the driver in NVML's form: 1000 major + 10 minor."""
    table = {450: 11000, 470: 11040, 515: 11070, 525: 12000, 535: 12020, 550: 12040, 570: 12080, 580: 13000}
    return table[max((m for m in table if m <= node.state.driver_major), default=450)]


def _event_set_wait(node: SimNode, _s: SimSession, args: Args, _t: str) -> str:
    """Wait for an event. The arguments are the number of the last event, milliseconds, then GPUs and kinds in turn."""
    event = node.events.wait(args[0], args[1] / 1000, dict(zip(args[2::2], args[3::2], strict=False)))
    if event is None:
        raise NvmlRefusalError(codes.TIMEOUT)
    return numbers(event.number, event.gpu, event.kind, event.data, event.gi, event.ci)


SYSTEM: dict[str, SystemCall] = {
    "EventSetCreate": lambda node, _s, _a, _t: str(node.events.last),
    "EventSetFree": lambda _n, _s, _a, _t: "",
    "EventSetWait": _event_set_wait,
    "SystemGetDriverVersion": lambda node, _s, _a, _t: "|" + node.state.driver,
    "SystemGetNVMLVersion": lambda node, _s, _a, _t: "|" + nvml_version(node),
    "SystemGetCudaDriverVersion": lambda node, _s, _a, _t: str(cuda_version(node)),
    "SystemGetProcessName": _process_name,
    "DeviceGetCount": lambda node, _s, _a, _t: str(len(node.visible)),
    "DeviceGetHandleByIndex": _handle_by_index,
    "DeviceGetHandleByUUID": _handle_by_uuid,
    "DeviceGetHandleByPciBusId": _handle_by_pci,
    "DeviceGetHandleBySerial": _handle_by_serial,
}


def nvml_version(node: SimNode) -> str:
    """Return the library's version: CUDA major, then the driver's version."""
    return f"{cuda_version(node) // 1000}.{node.state.driver}"


# -- a device, which may be a MIG device


def _compute(gpu: SimGpu, args: Args) -> tuple[SimInstance, Profile, ComputeProfile]:
    """Return the compute instance of a MIG device handle. Raises INVALID_ARGUMENT if it no longer exists."""
    instance = SimInstance(gpu, args[1])
    compute = instance.one(args[2])
    return instance, instance.profile, instance.compute_profile(compute.profile)


def _is_mig(args: Args) -> bool:
    return args[1] != WHOLE


def _name(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    if _is_mig(args):
        return f"|{gpu.state.product} MIG {_compute(gpu, args)[2].name}"
    return "|" + gpu.state.product


def _uuid(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    if _is_mig(args):
        _compute(gpu, args)
        return "|" + mig_uuid(gpu.state, args[1], args[2], gpu.driver_major)
    return "|" + gpu.state.uuid


def _bar1(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    total = 1 << (gpu.state.memory_mib - 1).bit_length()
    if _is_mig(args):
        profile = _compute(gpu, args)[1]
        total = total * profile.size // gpu.family_table.family.memory_slices
    return numbers(total * MIB, (total - 1) * MIB, MIB)


def _processes(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    if _is_mig(args):
        _compute(gpu, args)
    mine = [p for p in gpu.state.processes if not _is_mig(args) or (p.gi, p.ci) == (args[1], args[2])]
    return numbers(*(n for p in mine for n in (p.pid, p.memory_mib * MIB, p.gi, p.ci)))


def _attributes(_n: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    if not _is_mig(args):
        raise NvmlRefusalError(codes.INVALID_ARGUMENT)
    _instance, profile, compute = _compute(gpu, args)
    family = gpu.family_table.family
    return numbers(
        sensors.compute_sm(family, profile, compute),
        *engines(profile),
        profile.compute_slices,
        compute.compute_slices,
        sensors.instance_memory_mib(family, profile, gpu.state.memory_mib),
    )


def engines(profile: Profile) -> list[int]:
    return [profile.engines.get(e) or 0 for e in ("ce", "dec", "enc", "jpeg", "ofa")]


# -- a whole GPU


def _serial_number(gpu: SimGpu) -> str:
    return str(1_320_000_000_000 + int(gpu.state.uuid[-6:], 16))


def _pci(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    domain, bus, rest = gpu.state.pci.split(":")
    device = rest.partition(".")[0]
    ids = (int(gpu.state.pci_device, 16), int(gpu.state.subsystem, 16))
    bus_id = f"{int(domain, 16):08X}:{bus.upper()}:{rest.upper()}"
    return f"{numbers(int(domain, 16), int(bus, 16), int(device, 16), *ids)}|{bus_id}"


def _brand(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    return str(sensors.brand(gpu.state.product))


def _codec(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    if gpu.state.mig:
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return numbers(0, 167000)


def _ecc(_n: SimNode, _s: SimSession, _g: SimGpu, _a: Args) -> str:
    return numbers(1, 1)


def _capability(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    return numbers(*sensors.compute_capability(gpu.state.product, gpu.state.architecture))


def _fabric(_n: SimNode, _s: SimSession, gpu: SimGpu, _a: Args) -> str:
    answer = place.fabric(gpu)
    return f"{numbers(answer.state, answer.status, answer.clique)}|{answer.cluster}"


def _ancestor(node: SimNode, _s: SimSession, gpu: SimGpu, args: Args) -> str:
    """Return NVML's topology level: 0 the same board, 40 the same CPU, 50 across CPUs (four GPUs each)."""
    other = node.gpu(args[3]).state.index
    mine = gpu.state.index
    return str(0 if mine == other else 40 if place.numa_node(gpu) == place.numa_node(node.gpu(other)) else 50)


def _virtualization(gpu: SimGpu) -> int:
    """Return NVML's virtualization mode: 0 bare metal, 1 passed through to this VM, 3 host of vGPUs."""
    return 1 if gpu.state.guest else 3 if gpu.state.host else 0


GPU_OR_MIG: dict[str, DeviceCall] = {
    "DeviceGetName": _name,
    "DeviceGetUUID": _uuid,
    "DeviceGetMemoryInfo": lambda _n, _s, gpu, args: numbers(
        *(n * MIB for n in usage.memory_mib(gpu, args[1], args[2]))
    ),
    "DeviceGetBAR1MemoryInfo": _bar1,
    "DeviceGetComputeRunningProcesses": _processes,
    "DeviceGetAttributes": _attributes,
}

GPU_ONLY: dict[str, DeviceCall] = {
    "DeviceGetIndex": lambda n, _s, gpu, _a: str(n.index(gpu)),
    "DeviceGetMinorNumber": lambda _n, _s, gpu, _a: str(gpu.state.minor),
    "DeviceGetSerial": lambda _n, _s, gpu, _a: "|" + _serial_number(gpu),
    "DeviceGetPciInfo": _pci,
    "DeviceGetBrand": _brand,
    "DeviceGetArchitecture": lambda _n, _s, gpu, _a: str(sensors.generation(gpu.state.architecture)[0]),
    "DeviceGetCudaComputeCapability": _capability,
    "DeviceGetPciClass": lambda _n, _s, gpu, _a: numbers(*place.pci_class(gpu)),
    "DeviceGetNumaNode": lambda _n, _s, gpu, _a: str(place.numa_node(gpu)),
    "DeviceGetGpuFabricInfo": _fabric,
    "DeviceGetUtilizationRates": lambda _n, _s, gpu, _a: numbers(*usage.rates(gpu)),
    "GpmQueryDeviceSupport": lambda _n, _s, gpu, _a: str(int(usage.has_gpm(gpu))),
    "GpmSampleGet": lambda _n, _s, gpu, args: str(round(1e6 * usage.busy(gpu, args[3]))),
    "DeviceGetEncoderUtilization": _codec,
    "DeviceGetDecoderUtilization": _codec,
    "DeviceGetEccMode": _ecc,
    "DeviceGetPersistenceMode": lambda _n, _s, gpu, _a: str(int(gpu.state.persistence)),
    "DeviceGetTopologyCommonAncestor": _ancestor,
    "DeviceGetVirtualizationMode": lambda _n, _s, gpu, _a: str(_virtualization(gpu)),
}


def metric(gpu: SimGpu, call: str, args: Args) -> str:
    """Return a single metric of an idle board. Raises NOT_SUPPORTED if this board, or a MIG device,
    does not have it.
    """
    value = sensors.metric(call, gpu.state.architecture, args[3] if len(args) > 3 else 0)
    if value is None or _is_mig(args):
        raise NvmlRefusalError(codes.NOT_SUPPORTED)
    return str(value)
