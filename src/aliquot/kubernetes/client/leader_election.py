"""Leader election through a Lease of ``coordination.k8s.io/v1``.

The rules are those of client-go. A candidate may take a Lease that stays unchanged for its whole duration by the
candidate's own clock. A leader that cannot renew within a shorter time stops leading. So there are never two leaders,
even if their wall clocks differ. The times in the Lease are only for people. Writes carry the version that was read.
RBAC permissions needed: get, create and patch on leases.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.objects import Lease

RELEASE_S = 3.0


class LeaseTiming(msgspec.Struct, frozen=True):
    """Timing of a Lease, in seconds."""

    lease_s: int = 15
    """How long other candidates respect an unchanged Lease."""
    renew_s: float = 10
    """How long a leader leads after a renewal."""
    retry_s: float = 2
    """Interval of renewals."""


DEFAULT_TIMING = LeaseTiming()


def boot_clock() -> float:
    """Return seconds that include suspend: a leader on a resumed host must notice that it no longer leads."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LeaderElector:
    """Candidate for a Lease while its context is open.

    For example::

        async with LeaderElector(api, "aliquot-controller") as leader:
            async for leading in leader:
                ...

    ``on_change`` is called with True when leadership begins and with False when it ends. The latter comes at most
    ``renew_s`` seconds after the last renewal, before another candidate can take the Lease. Check ``is_leader`` before
    every action: it is right even if this process was stopped for a while.
    """

    def __init__(
        self,
        api: Api,
        name: str,
        *,
        identity: str | None = None,
        namespace: str | None = None,
        timing: LeaseTiming = DEFAULT_TIMING,
        clock: Callable[[], float] = boot_clock,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        if not timing.retry_s < timing.renew_s < timing.lease_s:
            raise ValueError("a lease needs retry_s < renew_s < lease_s")
        self.identity = identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        self.error: ApiError | None = None
        self._api = api
        self._name = name
        self._namespace = namespace
        self._timing = timing
        self._clock = clock
        self._on_change = on_change or (lambda _: None)
        self._leads_until = float("-inf")
        self._reported = False
        self._lease: Lease | None = None
        self._observed_at = float("-inf")
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_leader(self) -> bool:
        return self._clock() < self._leads_until

    @property
    def holder(self) -> str:
        """Identity of the last observed leader; empty if there is none."""
        return self._lease.spec.holder_identity if self._lease is not None else ""

    async def __aenter__(self) -> LeaderElector:
        self._task = asyncio.create_task(self._run(), name=f"lease {self._name}")
        self._task.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        led = self.is_leader
        self._leads_until = float("-inf")
        self._notify()
        if led:
            with suppress(ApiError, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._release()

    async def __aiter__(self) -> AsyncGenerator[bool, None]:
        """Yield whether this candidate leads, now and at each change, until the context ends."""
        last: bool | None = None
        while self._task is not None and not self._task.done():
            changed = self._changed
            if self.is_leader != last:
                last = self.is_leader
                yield last
            else:
                await changed.wait()
        if self._task is not None and not self._task.cancelled() and (error := self._task.exception()):
            raise error

    async def _run(self) -> None:
        while True:
            started = self._clock()
            budget = self._leads_until - started if self.is_leader else self._timing.renew_s
            try:
                async with asyncio.timeout(budget):
                    await self._try(started)
                self.error = None
            except ApiError as error:
                self.error = error
            except TimeoutError:
                pass
            self._notify()
            pause = self._timing.retry_s * (1.0 if self.is_leader else random.uniform(1.0, 1.5))
            if self.is_leader:
                pause = min(pause, self._leads_until - self._clock())
            await asyncio.sleep(max(pause, 0))
            self._notify()

    async def _try(self, started: float) -> None:
        """Take or renew the Lease if allowed. ``renew_s`` counts from ``started``, the start of this try."""
        lease = self._lease if self.is_leader else await self._read_lease()
        try:
            if lease is None:
                self._observe(await self._create())
            elif self._can_take(lease):
                self._observe(await self._write(lease, self._lease_spec(lease)))
            else:
                self._leads_until = float("-inf")
                return
        except ConflictError:
            # Another write came first, perhaps this process's own, if its response was lost.
            lease = await self._read_lease()
            if lease is None or lease.spec.holder_identity != self.identity:
                self._leads_until = float("-inf")
                return
            self._observe(await self._write(lease, self._lease_spec(lease)))
        self._leads_until = started + self._timing.renew_s

    async def _read_lease(self) -> Lease | None:
        try:
            lease = await self._api.get(Lease, self._name, self._namespace)
        except NotFoundError:
            self._lease = None
            return None
        self._observe(lease)
        return lease

    def _observe(self, lease: Lease) -> None:
        """Store the Lease, and restart its duration on the local clock if it changed."""
        if self._lease is None or self._lease.metadata.resource_version != lease.metadata.resource_version:
            self._lease, self._observed_at = lease, self._clock()

    def _can_take(self, lease: Lease) -> bool:
        holder, lasts = lease.spec.holder_identity, lease.spec.lease_duration_seconds or self._timing.lease_s
        return holder in ("", self.identity) or self._clock() >= self._observed_at + lasts

    def _lease_spec(self, lease: Lease | None) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._timing.lease_s,
            "renewTime": now,
        }
        if lease is None or lease.spec.holder_identity != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = lease.spec.lease_transitions + 1 if lease is not None else 0
        return spec

    async def _create(self) -> Lease:
        body = {"metadata": {"name": self._name}, "spec": self._lease_spec(None)}
        return await self._api.create(Lease, body, self._namespace)

    async def _write(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        body = {"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": spec}
        return await self._api.patch(Lease, self._name, body, namespace=self._namespace)

    async def _release(self) -> None:
        """Release the Lease, so that the next leader can start at once."""
        lease = await self._read_lease()
        if lease is not None and lease.spec.holder_identity == self.identity:
            await self._write(lease, self._lease_spec(lease) | {"holderIdentity": "", "leaseDurationSeconds": 1})

    def _notify(self) -> None:
        leading = self.is_leader
        if leading != self._reported:
            self._reported = leading
            self._changed.set()
            self._changed = asyncio.Event()
            self._on_change(leading)
