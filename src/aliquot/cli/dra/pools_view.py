"""Output of ``aliquot dra show``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aliquot.cli.framework.views import gpu_drawing as draw

if TYPE_CHECKING:
    from aliquot.kubernetes.dra.view.pools import AllocatedView, DraGpuView, DraPoolView


def text(pools: Sequence[DraPoolView]) -> str:
    """Format the pools, each with its GPUs below."""
    return "\n\n".join("\n".join(_pool(pool)) for pool in pools)


def _pool(pool: DraPoolView) -> Iterator[str]:
    yield f"node {pool.node}  driver {pool.driver}  pool {pool.pool}"
    for problem in pool.problems:
        yield f"  problem    {problem}"
    for gpu in pool.gpus:
        yield f"GPU {gpu.pci}  {gpu.product}".rstrip()
        yield from draw.table([_allocated(device) for device in gpu.allocated])
        yield from _fits(gpu)


def _allocated(device: AllocatedView) -> tuple[str, str, str, str]:
    kind = "monitored" if device.admin else "allocated"
    return kind, _place(device), f"claim {device.claim}", _pods(device)


def _fits(gpu: DraGpuView) -> Iterator[str]:
    free = ", ".join(f"{each.profile}: {each.count}{' or more' * each.more}" for each in gpu.fits if each.count)
    if free:
        yield f"  fits       {free}"
    reasons: dict[str, list[str]] = {}
    for each in gpu.fits:
        if not each.count:
            reasons.setdefault(each.reason, []).append(each.profile)
    for reason, profiles in reasons.items():
        yield f"  not        {', '.join(profiles)}: {reason}"


def _place(device: AllocatedView) -> str:
    return f"{device.profile} at {device.start}:{device.size}" if device.size else device.profile


def _pods(device: AllocatedView) -> str:
    return f"pods {', '.join(device.pods)}" if device.pods else "no pod"
