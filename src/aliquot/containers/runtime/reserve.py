"""Current holders of devices, and the step from a request to a reservation. Pure but for the random id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aliquot.containers.runtime.models import Container, ContainerDevice, ContainerReservation
from aliquot.core.model.inventory import Holder


def busy(
    devices: Iterable[ContainerDevice], containers: Iterable[Container], names: Mapping[str, str]
) -> dict[str, tuple[Holder, ...]]:
    """Return the holders by device: its current holders, and containers that were started with it and run or are about
    to. Containers that requested all devices hold none in particular. ``names`` are UUIDs by every name that a
    container may use.
    """
    found = {d.uuid: list(d.holders) for d in devices}
    minors = {d.minors: d.uuid for d in devices}
    for container in containers:
        if not container.live:
            continue
        mine = {names[word] for word in container.requested.names if word in names}
        mine |= {uuid for pair, uuid in minors.items() if _by_node(pair, container.requested.nodes)}
        for uuid in mine:
            if uuid in found and container.holder not in found[uuid] and not _same(container, found[uuid]):
                found[uuid].append(container.holder)
    return {uuid: tuple(holders) for uuid, holders in found.items() if holders}


def _by_node(minors: Sequence[int], nodes: Sequence[str]) -> bool:
    gpu, *caps = minors
    return {f"/dev/nvidia{gpu}", *(f"/dev/nvidia-caps/nvidia-cap{m}" for m in caps)} <= set(nodes)


def _same(container: Container, holders: Iterable[Holder]) -> bool:
    """Report whether one of the holders is this container. A holder without a name may be the same container."""
    return any(h.kind == "container" and h.id.partition(":")[2] == container.id[:12] for h in holders)


def stopped_containers(
    containers: Iterable[Container], device: ContainerDevice, names: Mapping[str, str]
) -> tuple[Container, ...]:
    """Return the containers that ended and would have this device again if they were started again."""
    return tuple(c for c in containers if not c.live and any(names.get(w) == device.uuid for w in c.requested.names))


def reservation(
    devices: Sequence[ContainerDevice],
    requested: Sequence[str],
    *,
    runtime: str,
    connection_env: Mapping[str, str],
    name: str,
    now: float,
) -> ContainerReservation:
    """Return a new reservation without an end. Its id cannot be guessed, so that no other container has the label."""
    import secrets

    return ContainerReservation(
        id=secrets.token_hex(6),
        runtime=runtime,
        devices=tuple(d.uuid for d in devices),
        requested=tuple(requested),
        made=now,
        until=None,
        name=name,
        connection_env=dict(connection_env),
    )
