"""Names of GRES types, such as ``a100_3g.20gb`` for a MIG device and ``a100`` for a whole GPU, and their profiles.

Slurm's own NVML plugin (``AutoDetect=nvml``) derives a type from the GPU's name in lower case, with underscores for
spaces. A whole GPU keeps all of it: ``nvidia_a100-sxm4-40gb``. For a MIG device, the plugin truncates the name at the
first ``-``, and appends ``_`` and the part of NVML's device name after ``MIG``: ``nvidia_a100_3g.20gb`` (gpu_nvml.c,
23.02 to 26.05). A type in slurm.conf or gres.conf matches a detected device if it is a *part* of that name. All styles
here are.

    short     a100_3g.20gb          a100                     default
    full      nvidia_a100_3g.20gb   nvidia_a100-sxm4-40gb    exactly the plugin's names
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
FILLER = "pad"
"""Type of a record that stands for no device: nodes whose number of records stays the same have some."""

_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([+-][a-z0-9.]+)*")
_VENDOR = "nvidia_"


def type_of(gpu: Gpu, instance: GpuInstance | None, compute: ComputeInstance | None, style: TypeStyle = "short") -> str:
    """Return the type of a MIG device, or of a whole GPU if ``instance`` is None.

    A compute instance that does not fill its GPU instance has its own type (``a100_1c.3g.20gb``). Without ``compute``,
    the type is that of the GPU instance.
    """
    if instance is None:
        return whole_type(gpu, style)
    return slice_type(gpu, compute.profile if compute else instance.profile, style)


def slice_type(gpu: Gpu, profile: str, style: TypeStyle = "short") -> str:
    """Return the type of a profile on a GPU, whether such an instance exists or not."""
    return profile.lower() if style == "profile" else f"{_model(gpu, style)}_{profile.lower()}"


def whole_type(gpu: Gpu, style: TypeStyle = "short") -> str:
    """Return the type of a whole GPU."""
    return _plugin_name(gpu) if style == "full" else _model(gpu, "short")


def detected_type(gpu: Gpu, instance: GpuInstance | None, compute: ComputeInstance | None) -> str:
    """Return the type that Slurm's NVML plugin detects (23.02 and later)."""
    return type_of(gpu, instance, compute, "full")


def profile_of(text: str, gpus: Iterable[Gpu], tables: Iterable[Family] = ()) -> str | None:
    """Return the profile of a type in any style on one of these GPUs: ``3g.20gb`` for ``a100_3g.20gb``.

    Returns None for a whole GPU, and for a profile that no GPU supports. ``tables`` of the inventory take precedence
    over the catalog.
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
    """Return a GPU's geometry table, or None if there is none: then only the driver knows its profiles."""
    found = next((t for t in tables if t.name == gpu.family), None)
    if found is not None or gpu.family is None:
        return found
    try:
        return catalog.family(gpu.family)
    except KeyError:
        return None


def _model(gpu: Gpu, style: TypeStyle) -> str:
    """Return the part of a type before the profile: the GPU's name up to its first ``-``."""
    name = _plugin_name(gpu).partition("-")[0]
    return name if style == "full" else name.removeprefix(_VENDOR)


def _plugin_name(gpu: Gpu) -> str:
    return gpu.product.lower().replace(" ", "_")
