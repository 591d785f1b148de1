"""Names of GRES types: ``a100_3g.20gb`` for a slice, ``a100`` for a whole GPU; from the GPU to the name and back.

Slurm's own NVML plugin (``AutoDetect=nvml``) makes a type of the GPU's name, lower-case, spaces as underscores. For a
MIG device it cuts that at the first ``-`` and adds ``_`` and what NVML's name of the device says after ``MIG``:
``nvidia_a100_3g.20gb``; a whole GPU keeps all of it: ``nvidia_a100-sxm4-40gb`` (gpu_nvml.c, 23.02 to 26.05). A type in
slurm.conf or gres.conf agrees with a detected device if it is a *part* of that name: so every style here does.

    short     a100_3g.20gb          a100                     usual
    full      nvidia_a100_3g.20gb   nvidia_a100-sxm4-40gb    what the plugin says, letter by letter
    profile   3g.20gb               a100                     as in many sites' job scripts
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance

TypeStyle = Literal["short", "full", "profile"]
STYLES: tuple[TypeStyle, ...] = get_args(TypeStyle)

_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([+-][a-z0-9.]+)*")
_VENDOR = "nvidia_"


def type_of(gpu: Gpu, instance: GpuInstance | None, compute: ComputeInstance | None, style: TypeStyle = "short") -> str:
    """The type of a MIG device, or of a whole GPU where ``instance`` is None. A compute instance that does not fill its
    GPU instance has a type of its own (``a100_1c.3g.20gb``); without ``compute`` it is the GPU instance's.
    """
    if instance is None:
        return whole_type(gpu, style)
    return slice_type(gpu, compute.profile if compute else instance.profile, style)


def slice_type(gpu: Gpu, profile: str, style: TypeStyle = "short") -> str:
    """The type of a profile on a GPU, whether it is there or not: what a layout would offer."""
    return profile.lower() if style == "profile" else f"{_model(gpu, style)}_{profile.lower()}"


def whole_type(gpu: Gpu, style: TypeStyle = "short") -> str:
    """The type of a whole GPU."""
    return _plugin_name(gpu) if style == "full" else _model(gpu, "short")


def detected_type(gpu: Gpu, instance: GpuInstance | None, compute: ComputeInstance | None) -> str:
    """What Slurm's NVML plugin calls it (23.02 and later)."""
    return type_of(gpu, instance, compute, "full")


def profile_of(text: str, gpus: Iterable[Gpu], tables: Iterable[Family] = ()) -> str | None:
    """The profile that a type of any style means on one of these GPUs: ``3g.20gb`` of ``a100_3g.20gb``. None for a
    whole GPU, and for what none of these GPUs can have. ``tables`` are the inventory's own, before the catalog's.
    """
    wanted = text.lower()
    for gpu in gpus:
        table = _table(gpu, tables)
        for name in _profiles_in(wanted, gpu):
            if table is None or name in _names(table):
                return name
    return None


def _profiles_in(text: str, gpu: Gpu) -> list[str]:
    starts = [f"{_model(gpu, style)}_" for style in ("short", "full")]
    ends = [text, *(text.removeprefix(each) for each in starts if text.startswith(each))]
    return [each for each in ends if _PROFILE.fullmatch(each)]


def _names(table: Family) -> set[str]:
    return {name for p in table.by_name.values() for name in (p.name, *(c.name for c in p.compute))}


def _table(gpu: Gpu, tables: Iterable[Family]) -> Family | None:
    """None for a GPU whose family no table has: then its driver alone knows what it can be cut into."""
    found = next((t for t in tables if t.name == gpu.family), None)
    if found is not None or gpu.family is None:
        return found
    try:
        return catalog.family(gpu.family)
    except KeyError:
        return None


def _model(gpu: Gpu, style: TypeStyle) -> str:
    """What stands before a profile: the name up to its first ``-``."""
    name = _plugin_name(gpu).partition("-")[0]
    return name if style == "full" else name.removeprefix(_VENDOR)


def _plugin_name(gpu: Gpu) -> str:
    return gpu.product.lower().replace(" ", "_")
