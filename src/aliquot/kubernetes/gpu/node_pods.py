"""Pods of a node: matching those that block a change, waiting until they are gone, and deleting validators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from aliquot.kubernetes.client.cancellable_wait import WaitEnd, WaitLimit, is_retryable
from aliquot.kubernetes.client.codec import ObjectList
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import KubeObject, Pod
from aliquot.kubernetes.gpu.gpu_operands import Operand

K = TypeVar("K", bound=KubeObject)
Match = Callable[[Pod], bool]

_STATIC = "kubernetes.io/config.mirror"


class PodApi(Protocol):
    """The API calls that node pods need."""

    async def list(
        self, kind: type[K], namespace: str | None = None, *, fields: str | None = None
    ) -> tuple[K, ...]: ...

    def selection(self, kind: type[Pod], namespace: str | None = None, *, fields: str | None = None) -> Any: ...

    async def snapshot(self, kind: type[K], where: Any, version: str | None = None) -> ObjectList[K]: ...

    async def delete(
        self,
        kind: type[KubeObject],
        name: str,
        namespace: str | None = None,
        *,
        grace_s: int | None = None,
        uid: str | None = None,
    ) -> None: ...


class PodWaitResult(msgspec.Struct, frozen=True):
    """Outcome of a wait, with the pods that remain."""

    end: WaitEnd
    remaining: tuple[Pod, ...] = ()

    @property
    def gone(self) -> bool:
        return self.end is WaitEnd.DONE

    @property
    def sentence(self) -> str:
        """The remaining pods for people, at most eight by name."""
        if not self.remaining:
            return "no pod remains" if self.gone else "the remaining pods are unknown"
        return f"still there: {pod_list_text(self.remaining)}"


def pod_list_text(found: Sequence[Pod]) -> str:
    """List pods by name, at most eight."""
    more = len(found) - 8
    return ", ".join(sorted(map(pod_text, found))[:8]) + (f" and {more} more" if more > 0 else "")


def pod_text(pod: Pod) -> str:
    """Return ``namespace/name``, marked if the pod is being deleted."""
    where = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"{where} (being deleted)" if pod.metadata.deletion_timestamp else where


def has_ended(pod: Pod) -> bool:
    """Report whether all containers have ended, so that the pod holds no device although its object exists."""
    return pod.status.phase in ("Succeeded", "Failed")


def is_daemon_pod(pod: Pod) -> bool:
    """Report whether a DaemonSet owns the pod, which creates it again at once, even on a cordoned node."""
    return any(owner.kind == "DaemonSet" and owner.controller for owner in pod.metadata.owner_references)


def is_static(pod: Pod) -> bool:
    """Report whether the kubelet runs the pod from a file on the node; deleting the API object does not stop it."""
    return _STATIC in pod.metadata.annotations or any(o.kind == "Node" for o in pod.metadata.owner_references)


def operand_matcher(operands: Iterable[Operand], namespaces: Collection[str]) -> Match:
    """Return a match for the pods that pausing these operands removes.

    They have the operand's ``app`` label in one of the operator's namespaces, or belong in any namespace to a DaemonSet
    that selects nodes by the operand's deploy label (third-party clients).
    """
    apps = {operand.app for operand in operands if operand.app}
    labels = {operand.label for operand in operands}

    def match(pod: Pod) -> bool:
        if pod.metadata.namespace in namespaces and pod.metadata.labels.get("app") in apps:
            return True
        return is_daemon_pod(pod) and not labels.isdisjoint(pod.spec.node_selector)

    return match


async def pods_on_node(api: PodApi, node: str, match: Match, *, cached: bool = False) -> tuple[Pod, ...]:
    """List the pods on this node that match and have not ended. Raises ApiError.

    ``cached`` reads from the cache of the API server, which may be slightly stale. Without it, the API server reads
    every pod of the cluster from etcd, which has no index by node.
    """
    where = api.selection(Pod, "*", fields=f"spec.nodeName={node}")
    page = await api.snapshot(Pod, where, "0" if cached else None)
    return tuple(pod for pod in page.items if not has_ended(pod) and match(pod))


async def await_gone(
    api: PodApi,
    node: str,
    match: Match,
    bound: WaitLimit,
    on_remaining: Callable[[tuple[Pod, ...]], Awaitable[None]] | None = None,
) -> PodWaitResult:
    """Wait until no matching pod is on the node, starting with an immediate poll.

    ``on_remaining`` is called with the remaining pods at each poll. The wait continues while the API server is
    unavailable. Raises ForbiddenError at once, and any other ApiError if no poll succeeded before the timeout.
    """
    observed: list[tuple[Pod, ...]] = []
    errors: list[ApiError] = []

    async def poll() -> None:
        cached = False
        while True:
            try:
                found = await pods_on_node(api, node, match, cached=cached)
                if not found and cached:
                    cached = False
                    continue  # confirm with a read from etcd that no pod is left
                observed[:] = [found]
                if not found:
                    return
                if on_remaining is not None:
                    await on_remaining(found)
                cached = True
            except ApiError as error:
                if not is_retryable(error):
                    raise
                errors.append(error)
            await asyncio.sleep(bound.poll_s)

    end = await bound.run(poll())
    if end is WaitEnd.TIMED_OUT and not observed and errors:
        raise errors[-1]
    return PodWaitResult(end, observed[0] if observed else ())


async def delete_validators(
    api: PodApi, node: str, apps: Collection[str], namespaces: Collection[str], bound: WaitLimit
) -> tuple[str, ...]:
    """Delete the node's pods with these ``app`` labels, and return their ``namespace/name``.

    A pod that is already gone or was created again meanwhile is not an error. Raises the last ApiError at the timeout.
    """
    deleted: dict[str, None] = {}
    errors: list[ApiError] = []

    def match(pod: Pod) -> bool:
        return pod.metadata.namespace in namespaces and pod.metadata.labels.get("app") in apps

    async def retry() -> None:
        while True:
            try:
                found = [p for p in await api.list(Pod, "*", fields=f"spec.nodeName={node}") if match(p)]
                for pod in found:
                    if pod.metadata.deletion_timestamp is None:
                        await delete_pod(api, pod)
                    deleted[f"{pod.metadata.namespace}/{pod.metadata.name}"] = None
                return
            except ApiError as error:
                if not is_retryable(error):
                    raise
                errors.append(error)
            await asyncio.sleep(bound.poll_s)

    if await bound.run(retry()) is WaitEnd.TIMED_OUT:
        raise (
            errors[-1] if errors else ApiUnavailableError(f"deleting validators took more than {bound.timeout_s:.0f} s")
        )
    return tuple(deleted)


async def delete_pod(api: PodApi, pod: Pod, *, grace_s: int | None = None) -> None:
    """Delete exactly this pod, by its uid. Does nothing if it is gone or replaced; raises other ApiErrors."""
    try:
        await api.delete(Pod, pod.metadata.name, pod.metadata.namespace, grace_s=grace_s, uid=pod.metadata.uid)
    except (NotFoundError, ConflictError):
        return
