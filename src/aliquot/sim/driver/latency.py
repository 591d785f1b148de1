"""Latencies of calls. ``measured`` are the constants of the FAR authors (A30, A100, H100), per slice count.

They measured GPU instance and compute instance together. The split (60 % GPU instance) is an estimate. So are Blackwell
(as H100), a mode change on Hopper (an upper bound from a public test log) and a reset.
"""

from __future__ import annotations

_GPU_INSTANCE_SHARE = 0.6
_MODE_CHANGE_S = 2.7
_RESET_S = 5.0

_A30 = ({1: 0.11, 2: 0.12, 4: 0.13}, {1: 0.10, 2: 0.10, 4: 0.10})
_A100 = ({1: 0.16, 2: 0.17, 3: 0.20, 4: 0.21, 7: 0.24}, {1: 0.20, 2: 0.20, 3: 0.21, 4: 0.21, 7: 0.22})
_H100 = ({1: 0.16, 2: 0.21, 3: 0.33, 4: 0.38, 7: 0.42}, {1: 0.21, 2: 0.23, 3: 0.25, 4: 0.26, 7: 0.26})


def _tables(architecture: str, slot_model: str) -> tuple[dict[int, float], dict[int, float]]:
    if architecture != "ampere":
        return _H100
    return _A30 if slot_model == "quarters" else _A100


def seconds(step: str, slices: int, architecture: str, slot_model: str) -> float:
    """Return the seconds for one call. ``step`` is create, destroy, create-compute, destroy-compute, mode or reset."""
    if step == "reset":
        return _RESET_S
    if step == "mode":
        return _RESET_S if architecture == "ampere" else _MODE_CHANGE_S
    create, destroy = _tables(architecture, slot_model)
    table = create if step.startswith("create") else destroy
    whole = table[min(table, key=lambda n: abs(n - slices))]
    return whole * (1 - _GPU_INSTANCE_SHARE if step.endswith("compute") else _GPU_INSTANCE_SHARE)
