"""Templates of nodes, ``PRODUCT[:flag...][*N]`` in a comma list, and the GPUs that they describe.

PRODUCT is the NVML name in lowercase without "NVIDIA", with other characters as ``-``, or the name of a host model,
which stands for all its GPUs (``hgx-h200:vfio``). ``@VERSION`` at the end sets the driver, for example
``a30*2@535.183.01``. Flags:

- ``swapped``: the board's missing compute slice is in the low half
- ``guest``: passed through to this node, which cannot reset it
- ``mdev`` and ``vfio``: the vGPU host driver, with mdevs or in a kernel with vendor-specific VFIO
- ``compute``: its edition that lists C-series types of every board
- ``grouped``: a network card is in the GPU's IOMMU group
- ``host``: behind the GPU's root port are disks and network cards; the host itself needs some of them
- ``noiommu``: the node's IOMMU is off
- ``busXX``: its PCI bus, in hexadecimal (``a2:mdev:bus08`` is ``0000:08:00.0``)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container

import msgspec

from aliquot.core.model import catalog
from aliquot.errors import UsageError
from aliquot.foundation.decimals import decimal
from aliquot.sim import host_devices
from aliquot.sim.driver.sensor_values import total_memory_mib
from aliquot.sim.state import DEFAULT_DRIVER, GpuState, NeighbourState, NodeState

ALIASES = {
    "dgx-a100": "a100-sxm4-40gb*8",
    "dgx-a100-80gb": "a100-sxm4-80gb*8",
    "dgx-h100": "h100-80gb-hbm3*8",
    "hgx-h200": "h200*8",
    "hgx-b200": "b200*8",
    "a100": "a100-sxm4-40gb",
    "rtx-pro-6000": "rtx-pro-6000-blackwell-server-edition",
}

MAX_GPUS = 32
"""Device minors 0 to 31 have capability minors (MIG User Guide)."""
MAX_NODES = 2000
"""Limit of nodes per command: a server holds four open files for each."""

_DGX_BUSES = (0x07, 0x0F, 0x47, 0x4E, 0x87, 0x90, 0xB7, 0xBD)
_DGX_MINORS = (2, 3, 0, 1, 6, 7, 4, 5)
"""Addresses and device minors of a DGX A100: a minor is not an index."""

_FLAGS = ("swapped", "guest", "mdev", "vfio", "compute", "grouped", "host", "noiommu")
HOSTS = ("mdev", "vfio")
"""The kinds of vGPU host driver that a GPU may have; a node without it has the ordinary driver."""
_ITEM = re.compile(r"([a-z0-9][a-z0-9-]*?)((?::[a-z]+[0-9a-f]*)*)(?:\*(\d{1,9}))?")
_BUS = re.compile(r"bus([0-9a-f]{2})")
_TIMES = re.compile(r"(.+)x(\d{1,9})")
_VERSION = re.compile(r"\d+(\.\d+)*")


class TemplateGpu(msgspec.Struct, frozen=True):
    """A GPU to be created: a catalog row and the board's flags."""

    device: catalog.Device
    flags: tuple[str, ...]

    @property
    def bus(self) -> int | None:
        """The requested PCI bus, or None."""
        found = next(filter(None, map(_BUS.fullmatch, self.flags)), None)
        return None if found is None else int(found.group(1), 16)


def slug(name: str) -> str:
    """Return a product name in its template form: ``a100-sxm4-40gb`` for ``NVIDIA A100-SXM4-40GB``."""
    plain = name.partition(" (")[0].removeprefix("NVIDIA ")
    return re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")


def products() -> dict[str, catalog.Device]:
    """Return all products of the catalog by their template name."""
    found: dict[str, catalog.Device] = {}
    for device in catalog.devices():
        found.setdefault(slug(device.name), device)
    for word, device in list(found.items()):
        found.setdefault(word.removeprefix("tesla-"), device)
    return found


def template_gpus(template: str) -> tuple[TemplateGpu, ...]:
    """Return the GPUs of a template. Raises UsageError with close matches for an unknown product."""
    made: list[TemplateGpu] = []
    for item in template.split(","):
        made += _item(item.strip())
    if len(made) > MAX_GPUS:
        raise UsageError(f"{len(made)} GPUs are more than one driver can number ({MAX_GPUS})")
    return tuple(made)


def _item(item: str) -> list[TemplateGpu]:
    known = products()
    match = _ITEM.fullmatch(item)
    if match is None:
        raise UsageError(
            f"{item!r} is not a part of a node template",
            details=("expected PRODUCT, PRODUCT*N or PRODUCT:flag*N, joined by commas: a100-sxm4-40gb*4,a30:swapped",),
            next_step="aliquot sim start dgx-a100",
        )
    word, flags, count = match.group(1), tuple(match.group(2).split(":")[1:]), int(match.group(3) or 1)
    times = _TIMES.fullmatch(word)
    if word not in known and word not in ALIASES and times and match.group(3) is None:
        word, count = times.group(1), int(times.group(2))
    word, _, several = ALIASES.get(word, word).partition("*")
    count *= int(several or 1)
    if word not in known:
        raise _unknown(word, known)
    if bad := [f for f in flags if f not in _FLAGS and not _BUS.fullmatch(f)]:
        raise UsageError(f"{item!r}: no flag {bad[0]!r}", details=(f"flags: {', '.join(_FLAGS)}, busXX",))
    if all(h in flags for h in HOSTS):
        raise UsageError(f"{item!r}: a kernel has mdevs or vendor-specific VFIO, not both")
    if not 1 <= count <= MAX_GPUS:
        raise UsageError(f"{item!r}: a node has 1 to {MAX_GPUS} GPUs")
    return [TemplateGpu(known[word], flags)] * count


def _unknown(word: str, known: dict[str, catalog.Device]) -> UsageError:
    import difflib

    close = difflib.get_close_matches(word, [*known, *ALIASES], n=4, cutoff=0.4)
    details = (f"close to it: {', '.join(close)}",) if close else ()
    return UsageError(
        f"no GPU {word!r} in the catalog", details=details, next_step=f"aliquot sim start {(close or ['dgx-a100'])[0]}"
    )


def split_driver(template: str, driver: str | None = None) -> tuple[str, str]:
    """Return the template without its ``@VERSION``, and the driver version. Raises UsageError."""
    plain, at, version = template.strip().partition("@")
    chosen = driver or (version if at else DEFAULT_DRIVER)
    if not _VERSION.fullmatch(chosen):
        raise UsageError(f"{chosen!r} is not a driver version (expected for example {DEFAULT_DRIVER})")
    return plain, chosen


def is_driver(version: str) -> bool:
    """Return whether a text is a driver version."""
    return _VERSION.fullmatch(version) is not None


def build(name: str, template: str, boot_id: str, driver: str | None = None, latency: str = "none") -> NodeState:
    """Build a new node. Raises UsageError for an invalid template."""
    plain, version = split_driver(template, driver)
    wanted = template_gpus(plain)
    dgx = len(wanted) == len(_DGX_BUSES)
    usual = _DGX_BUSES if dgx else range(1, len(wanted) + 1)
    buses = [default if spec.bus is None else spec.bus for spec, default in zip(wanted, usual, strict=True)]
    if twice := [bus for bus in buses if buses.count(bus) > 1]:
        raise UsageError(f"{plain!r}: two GPUs on PCI bus {twice[0]:02x}")
    hosts = [index for index, spec in enumerate(wanted) if "host" in spec.flags]
    if hosts and (taken := host_devices.BUSES.intersection(buses)):
        text = f"{plain!r}: PCI bus {min(taken):02x} has devices of the host"
        raise UsageError(text, next_step=f"choose another one: {plain.split(':')[0]}:host:bus08")
    gpus = []
    for index, (spec, bus) in enumerate(zip(wanted, buses, strict=True)):
        minor = _DGX_MINORS[index] if dgx else index
        gpus.append(_gpu(name, index, f"0000:{bus:02x}:00.0", minor, spec))
    iommu = not any("noiommu" in spec.flags for spec in wanted)
    made = NodeState(name, template, boot_id, gpus, version, latency, iommu=iommu)
    if hosts:
        gpus[hosts[0]].others = host_devices.functions()
        made.mounts, made.route = dict(host_devices.MOUNTS), host_devices.ROUTE
    return made


def _gpu(node: str, index: int, pci: str, minor: int, spec: TemplateGpu) -> GpuState:
    device = spec.device
    product = device.name.partition(" (")[0]
    number = device.pci_device if device.pci_device.startswith("0x") else "0x00000000"
    subsystem = next((s for s in device.subsystems if s.startswith("0x")), "0x0000")
    return GpuState(
        index=index,
        product=product,
        pci=pci,
        pci_device=number,
        subsystem=f"0x{subsystem[2:].upper()}10DE",
        architecture=device.architecture,
        uuid="GPU-" + name_uuid(f"{node}/{pci}"),
        minor=minor,
        memory_mib=total_memory_mib(product, device),
        family=device.mig_family,
        swapped="swapped" in spec.flags,
        guest="guest" in spec.flags,
        host=next((h for h in HOSTS if h in spec.flags), ""),
        compute="compute" in spec.flags,
        neighbour=NeighbourState() if "grouped" in spec.flags else None,
    )


def name_uuid(name: str) -> str:
    """Return a name-based (version 5) UUID, like those of MIG devices in drivers from R470 on."""
    raw = bytearray(hashlib.sha1(b"aliquot simulator:" + name.encode(), usedforsecurity=False).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x50
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def mig_uuid(gpu: GpuState, gi: int, ci: int, driver_major: int) -> str:
    """Return a MIG device's UUID, which is stable for the same GPU and ids. Before R470 it contained them as text (MIG
    User Guide).
    """
    if driver_major < 470:
        return f"MIG-{gpu.uuid}/{gi}/{ci}"
    return "MIG-" + name_uuid(f"{gpu.uuid}/{gi}/{ci}")


def names_for(requested: str | None, plain: str, count: str | None, taken: Container[str]) -> list[str]:
    """Return the names of new nodes: ``requested``, or ``plain`` (from the template), with a number if that is taken.
    With a ``count``, return numbered names of equal length, so that they sort (``gpu-0001`` to ``gpu-1000``). Raises
    UsageError.
    """
    if count is None:
        if requested is not None:
            return [requested]
        return [next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 10_000))) if n not in taken)]
    number = decimal(count) or 0
    if not 1 <= number <= MAX_NODES:
        raise UsageError(
            f"--count {count}: the number of nodes is 1 to {MAX_NODES}", next_step="aliquot sim start --help"
        )
    width = max(len(count), 2)
    return [f"{requested or plain}-{n:0{width}d}" for n in range(1, number + 1)]
