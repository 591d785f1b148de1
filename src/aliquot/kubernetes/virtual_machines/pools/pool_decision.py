"""The writes that bring pools of vGPUs to their request. Pure.

Pools are served in the order of their creation, and each takes what the ones before it left. A pool changes only
devices with its own label, and free ones that it takes. It never touches a vGPU that was enabled without it, and
disables no device that a VM uses or may use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.pools.pool_layouts import return_instances
from aliquot.kubernetes.virtual_machines.pools.pool_plan import PoolChange, PoolPlan
from aliquot.kubernetes.virtual_machines.pools.pool_round import PoolRound
from aliquot.kubernetes.virtual_machines.pools.pool_view import PoolView


def decide_pools(
    pools: Iterable[VGPUPool], snapshot: AdmissionSnapshot, now: float, silent: Collection[str] = ()
) -> tuple[PoolChange, ...]:
    """Return the writes that all pools need now. ``now`` is wall time in seconds. The agents of ``silent`` nodes do not
    answer.
    """
    found = sorted(pools, key=lambda each: (each.metadata.creation_timestamp or "", each.name))
    if not found:
        return ()
    plan = PoolPlan(PoolView(snapshot, now, silent), frozenset(pool.name for pool in found))
    rounds = [PoolRound(pool, plan) for pool in found]
    changes = [change for each in rounds for change in (each.deletion() if each.deleted else each.reconcile())]
    returned = tuple(return_instances(plan))
    # A pool that is the last one goes only after these writes: without a pool no round would try them again.
    released = () if returned else tuple(change for each in rounds if each.deleted for change in each.release())
    return (*changes, *returned, *released)
