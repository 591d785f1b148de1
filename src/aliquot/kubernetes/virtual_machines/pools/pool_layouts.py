"""The GPU instances that pools request in MigConfigurations, and give back once no vGPU needs them.

An annotation records what pools requested. If the spec requests exactly that, the layout is the pools' own. Harvester
destroys the instances of a MigConfiguration only all together, so they stay while the GPU has a vGPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from aliquot.kubernetes.kinds.harvester import MigConfiguration, MigProfileSpec
from aliquot.kubernetes.kinds.harvester_names import POOL_INSTANCES_ANNOTATION
from aliquot.kubernetes.virtual_machines.pools.pool_plan import PoolChange, PoolPlan, change


def request_instances(layout: MigConfiguration, pool: str, profile: str, count: int) -> PoolChange:
    """Return the write that requests more instances of a profile, besides those of an enabled layout."""
    before = {row.id: row.requested for row in layout.spec.profile_spec} if layout.spec.enabled else {}
    # The status has all profiles; a user's merge patch may have dropped some from the spec.
    rows = [
        MigProfileSpec(row.id, row.name, before.get(row.id, 0) + count * (_short(row.name) == profile))
        for row in layout.status.profile_status
    ]
    body = _request(rows, enabled=True)
    if not layout.spec.enabled or _is_ours(layout):
        body["metadata"] = {"annotations": {POOL_INSTANCES_ANNOTATION: _described(rows)}}
    return change(layout, body, f"pool {pool} needs {count} x {profile}")


def return_instances(plan: PoolPlan) -> Iterator[PoolChange]:
    """Yield the writes that disable layouts of pools whose GPU has no vGPU any more, and that no pool still needs."""
    kept = plan.wanted | plan.taken
    for name, layout in plan.view.snapshot.migs.items():
        if not layout.spec.enabled or name in kept or not _is_ours(layout) or plan.types_on(name):
            continue
        if not plan.view.users.describe_claim(*(device.name for device in plan.view.devices_on(name))):
            rows = [MigProfileSpec(row.id, row.name, 0) for row in layout.spec.profile_spec]
            body = _request(rows, enabled=False)
            body["metadata"] = {"annotations": {POOL_INSTANCES_ANNOTATION: None}}
            yield change(layout, body, "pools requested it, and the GPU has no vGPU any more")


def requests_profile(layout: MigConfiguration | None, profile: str) -> bool:
    """Report whether an enabled layout requests instances of a profile."""
    rows = layout.spec.profile_spec if layout is not None and layout.spec.enabled else ()
    return any(row.requested > 0 and _short(row.name) == profile for row in rows)


def _is_ours(layout: MigConfiguration) -> bool:
    recorded = layout.metadata.annotations.get(POOL_INSTANCES_ANNOTATION)
    return bool(recorded) and recorded == _described(layout.spec.profile_spec)


def _described(rows: Iterable[MigProfileSpec]) -> str:
    return ",".join(f"{_short(row.name)}={row.requested}" for row in rows if row.requested > 0)


def _short(name: str) -> str:
    return name.removeprefix("MIG ")


def _request(rows: Iterable[MigProfileSpec], *, enabled: bool) -> dict[str, Any]:
    requested = [{"id": row.id, "name": row.name, "requested": row.requested} for row in rows]
    return {"spec": {"enabled": enabled, "profileSpec": requested}}
