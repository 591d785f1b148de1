"""Asking pods to leave: the Eviction API, so that PodDisruptionBudgets hold, within a bound and with a reason for each
pod that stays.

Pods are found once by name and from then on meant by their uid: one that was made again under the same name is another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.cancellable_wait import Bound, End, passing
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu.node_pods import K, PodApi, ended, of_daemon, remove, static

FORCE_WAIT_S = 30.0
"""How long a pod that was deleted without grace may take to go."""
_SLOWEST = 10
"""How many times longer than the poll the pause between two attempts at an eviction becomes."""


class DrainApi(PodApi, Protocol):
    """What is needed of the API server here."""

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...

    async def evict(
        self, name: str, namespace: str | None = None, *, grace_s: int | None = None, uid: str | None = None
    ) -> None: ...


class Stays(msgspec.Struct, frozen=True):
    """A pod that is still there, and why."""

    namespace: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}: {self.reason}"


class Evicted(msgspec.Struct, frozen=True):
    """Which pods (``namespace/name``) are gone, and which stay. ``end`` SUPERSEDED: nobody waited to the end."""

    end: End
    gone: tuple[str, ...] = ()
    stays: tuple[Stays, ...] = ()


async def evict(
    api: DrainApi,
    pods: Iterable[tuple[str, str]],
    bound: Bound,
    *,
    node: str = "",
    force: bool = False,
    remain: Callable[[tuple[Stays, ...]], Awaitable[None]] | None = None,
) -> Evicted:
    """Evicts pods, each named by namespace and name, side by side, and waits until they are gone. A budget that forbids
    it is asked again until the bound is over. Pods of a DaemonSet and static pods come back by themselves, so they are
    reported and left. ``force`` deletes what then remains without grace, pods of a DaemonSet too. A pod that is not on
    ``node`` (any more) counts as gone. ``remain`` is told now and then which pods stay, and why. Raises ForbiddenError.
    """
    leavers = [_Leaver(api, namespace, name, node, force, bound.poll_s) for namespace, name in dict.fromkeys(pods)]
    telling = asyncio.ensure_future(_tell(leavers, bound.poll_s, remain)) if remain is not None else None
    try:
        return await _evicted(leavers, bound, force=force)
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)


async def _tell(
    leavers: Sequence[_Leaver], every_s: float, remain: Callable[[tuple[Stays, ...]], Awaitable[None]]
) -> None:
    while True:
        await asyncio.sleep(every_s)
        if stays := _staying(leavers):
            await remain(stays)


def _staying(leavers: Iterable[_Leaver]) -> tuple[Stays, ...]:
    return tuple(Stays(leaver.namespace, leaver.name, leaver.reason) for leaver in leavers if not leaver.gone)


async def _evicted(leavers: Sequence[_Leaver], bound: Bound, *, force: bool) -> Evicted:
    end = await bound.run(_all(leaver.leave() for leaver in leavers))
    left = [leaver for leaver in leavers if leaver.movable]
    if force and left and end is End.LATE:
        last = Bound(FORCE_WAIT_S, bound.poll_s, bound.superseded)
        end = await last.run(_all(leaver.end() for leaver in left))
    gone = tuple(leaver.key for leaver in leavers if leaver.gone)
    return Evicted(end, gone, _staying(leavers))


class _Leaver:
    """One pod on its way out. ``movable`` False: it would come back, or is gone."""

    def __init__(self, api: DrainApi, namespace: str, name: str, node: str, force: bool, poll_s: float) -> None:
        self.api, self.node, self.force, self.poll_s = api, node, force, poll_s
        self.namespace, self.name = namespace, name
        self.key = f"{namespace}/{name}"
        self.gone = False
        self.movable = True
        self.reason = "it was not looked at in time"
        self.pod: Pod | None = None

    async def leave(self) -> None:
        """Evicts and waits, for as long as it takes."""
        if not await self._present() or not self._judge():
            return
        backoff, refusals = Backoff(self.poll_s, self.poll_s * _SLOWEST), 0
        while not await self._asked():
            refusals += 1
            await asyncio.sleep(backoff.pause(refusals))
            if not await self._present():
                return
        while await self._present():
            await asyncio.sleep(self.poll_s)

    async def end(self) -> None:
        """Deletes without grace and waits."""
        while True:
            try:
                if self.pod is not None:
                    await remove(self.api, self.pod, grace_s=0)
                    self.reason = "it was deleted without grace and is still there"
            except ApiError as error:
                self._note(error)
            if not await self._present():
                return
            await asyncio.sleep(self.poll_s)

    async def _present(self) -> bool:
        """Whether this very pod still runs on the node; asks until there is an answer."""
        while True:
            try:
                pod = await self.api.get(Pod, self.name, self.namespace)
            except NotFoundError:
                return self._leaves()
            except ApiError as error:
                self._note(error)
                await asyncio.sleep(self.poll_s)
                continue
            other = self.pod is not None and pod.metadata.uid != self.pod.metadata.uid
            if other or ended(pod) or (self.node and pod.spec.node_name not in ("", self.node)):
                return self._leaves()
            self.pod = pod
            return True

    def _leaves(self) -> bool:
        self.gone, self.movable = True, False
        return False

    def _judge(self) -> bool:
        """Whether there is a point in asking it to leave."""
        assert self.pod is not None
        if static(self.pod):
            self.reason = "a static pod of the node: take its file out of the kubelet's manifest directory"
            self.movable = False
        elif of_daemon(self.pod) and not self.force:
            owner = next(o.name for o in self.pod.metadata.owner_references if o.kind == "DaemonSet")
            self.reason = f"DaemonSet {owner} would make it again at once"
            self.movable = False
        return self.movable

    async def _asked(self) -> bool:
        """Whether it is on its way now. False if it may not go yet."""
        assert self.pod is not None
        if self.pod.metadata.deletion_timestamp is None:
            try:
                await self.api.evict(self.name, self.namespace, uid=self.pod.metadata.uid)
            except NotFoundError:
                return True
            except ConflictError:
                return False  # another pod has its name: another look tells
            except ApiError as error:
                self._note(error)
                return False
        seconds = self.pod.spec.termination_grace_period_seconds
        self.reason = f"it is being deleted and has not ended yet (it may take {seconds} s)"
        return True

    def _note(self, error: ApiError) -> None:
        if not passing(error):
            raise error
        self.reason = "; ".join((error.brief, *error.details))


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Side by side; the first error ends them all."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
