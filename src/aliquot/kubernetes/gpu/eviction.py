"""Eviction of pods through the Eviction API, which respects PodDisruptionBudgets, with a timeout.

Each pod that remains is reported with a reason. A pod is looked up by name once and then identified by its uid: a new
pod of the same name is another pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.cancellable_wait import WaitEnd, WaitLimit, is_retryable
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Pod
from aliquot.kubernetes.gpu.node_pods import K, PodApi, delete_pod, has_ended, is_daemon_pod, is_static

FORCE_WAIT_S = 30.0
"""Seconds that a pod may take to disappear after its deletion without a grace period."""
_SLOWEST = 10
"""Longest pause between two eviction attempts, as a multiple of the poll interval."""


class DrainApi(PodApi, Protocol):
    """The API calls that a drain needs."""

    async def get(self, kind: type[K], name: str, namespace: str | None = None) -> K: ...

    async def evict(
        self, name: str, namespace: str | None = None, *, grace_s: int | None = None, uid: str | None = None
    ) -> None: ...


class RemainingPod(msgspec.Struct, frozen=True):
    """A pod that is still there, with the reason."""

    namespace: str
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}: {self.reason}"


class EvictionResult(msgspec.Struct, frozen=True):
    """Outcome of an eviction."""

    end: WaitEnd
    """SUPERSEDED if the wait was cut short by a newer request."""
    gone: tuple[str, ...] = ()
    """Pods that are gone, as ``namespace/name``."""
    remaining: tuple[RemainingPod, ...] = ()


async def evict(
    api: DrainApi,
    pods: Iterable[tuple[str, str]],
    bound: WaitLimit,
    *,
    node: str = "",
    force: bool = False,
    on_remaining: Callable[[tuple[RemainingPod, ...]], Awaitable[None]] | None = None,
) -> EvictionResult:
    """Evict pods (namespace and name) concurrently, and wait until they are gone.

    An eviction that a budget forbids is retried until the timeout. Pods of a DaemonSet and static pods would come back,
    so they are reported but not evicted. With ``force``, the pods that remain at the timeout are deleted without a
    grace period, including those of a DaemonSet. A pod that is not or no longer on ``node`` counts as gone.
    ``on_remaining`` is called periodically with the remaining pods and their reasons. Raises ForbiddenError.
    """
    evictions = [
        _PodEviction(api, namespace, name, node, force, bound.poll_s) for namespace, name in dict.fromkeys(pods)
    ]
    report_task = (
        asyncio.ensure_future(_report_remaining(evictions, bound.poll_s, on_remaining))
        if on_remaining is not None
        else None
    )
    try:
        return await _run_evictions(evictions, bound, force=force)
    finally:
        if report_task is not None:
            report_task.cancel()
            await asyncio.gather(report_task, return_exceptions=True)


async def _report_remaining(
    evictions: Sequence[_PodEviction],
    interval_s: float,
    on_remaining: Callable[[tuple[RemainingPod, ...]], Awaitable[None]],
) -> None:
    while True:
        await asyncio.sleep(interval_s)
        if remaining := _remaining(evictions):
            await on_remaining(remaining)


def _remaining(evictions: Iterable[_PodEviction]) -> tuple[RemainingPod, ...]:
    return tuple(
        RemainingPod(eviction.namespace, eviction.name, eviction.reason) for eviction in evictions if not eviction.gone
    )


async def _run_evictions(evictions: Sequence[_PodEviction], bound: WaitLimit, *, force: bool) -> EvictionResult:
    end = await bound.run(_gather(eviction.run() for eviction in evictions))
    left = [eviction for eviction in evictions if eviction.movable]
    if force and left and end is WaitEnd.TIMED_OUT:
        last = WaitLimit(FORCE_WAIT_S, bound.poll_s, bound.superseded)
        end = await last.run(_gather(eviction.delete() for eviction in left))
    gone = tuple(eviction.key for eviction in evictions if eviction.gone)
    return EvictionResult(end, gone, _remaining(evictions))


class _PodEviction:
    """The eviction of one pod. ``movable`` is False if the pod is gone or would come back."""

    def __init__(self, api: DrainApi, namespace: str, name: str, node: str, force: bool, poll_s: float) -> None:
        self.api, self.node, self.force, self.poll_s = api, node, force, poll_s
        self.namespace, self.name = namespace, name
        self.key = f"{namespace}/{name}"
        self.gone = False
        self.movable = True
        self.reason = "it was not checked in time"
        self.pod: Pod | None = None

    async def run(self) -> None:
        """Evict the pod and wait until it is gone, without a timeout."""
        if not await self._present() or not self._check_movable():
            return
        backoff, refusals = Backoff(self.poll_s, self.poll_s * _SLOWEST), 0
        while not await self._evict():
            refusals += 1
            await asyncio.sleep(backoff.pause(refusals))
            if not await self._present():
                return
        while await self._present():
            await asyncio.sleep(self.poll_s)

    async def delete(self) -> None:
        """Delete the pod without a grace period and wait until it is gone."""
        while True:
            try:
                if self.pod is not None:
                    await delete_pod(self.api, self.pod, grace_s=0)
                    self.reason = "it was deleted without a grace period and is still there"
            except ApiError as error:
                self._record_error(error)
            if not await self._present():
                return
            await asyncio.sleep(self.poll_s)

    async def _present(self) -> bool:
        """Report whether this pod, by its uid, still runs on the node. Retries until the API server answers."""
        while True:
            try:
                pod = await self.api.get(Pod, self.name, self.namespace)
            except NotFoundError:
                return self._mark_gone()
            except ApiError as error:
                self._record_error(error)
                await asyncio.sleep(self.poll_s)
                continue
            other = self.pod is not None and pod.metadata.uid != self.pod.metadata.uid
            if other or has_ended(pod) or (self.node and pod.spec.node_name not in ("", self.node)):
                return self._mark_gone()
            self.pod = pod
            return True

    def _mark_gone(self) -> bool:
        self.gone, self.movable = True, False
        return False

    def _check_movable(self) -> bool:
        """Report whether an eviction is useful, and record the reason if it is not."""
        assert self.pod is not None
        if is_static(self.pod):
            self.reason = "a static pod of the node: remove its file from the kubelet's manifest directory"
            self.movable = False
        elif is_daemon_pod(self.pod) and not self.force:
            owner = next(o.name for o in self.pod.metadata.owner_references if o.kind == "DaemonSet")
            self.reason = f"DaemonSet {owner} would create it again at once"
            self.movable = False
        return self.movable

    async def _evict(self) -> bool:
        """Evict the pod. Returns False if it cannot be evicted yet."""
        assert self.pod is not None
        if self.pod.metadata.deletion_timestamp is None:
            try:
                await self.api.evict(self.name, self.namespace, uid=self.pod.metadata.uid)
            except NotFoundError:
                return True
            except ConflictError:
                return False  # another pod has its name now, as the next poll finds
            except ApiError as error:
                self._record_error(error)
                return False
        seconds = self.pod.spec.termination_grace_period_seconds
        self.reason = f"it is being deleted and has not ended yet (it may take {seconds} s)"
        return True

    def _record_error(self, error: ApiError) -> None:
        if not is_retryable(error):
            raise error
        self.reason = "; ".join((error.brief, *error.details))


async def _gather(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run the work concurrently; the first error cancels the rest."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
