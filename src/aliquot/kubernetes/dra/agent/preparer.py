"""Prepares claims: each gets exactly the devices that the scheduler allocated to it, by a plan and the engine.

Claims that arrive while the GPUs change are planned together next, and the engine works on all GPUs in parallel. A
kill is harmless at any moment. The instances to create are recorded before the change, and the claims after it. A read
under the node's lock then shows that their devices still exist, and only then kubelet gets an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, BlockedError, LockedError, StalePlanError
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiUnavailableError
from aliquot.kubernetes.dra.agent import claim_plan, vm_files
from aliquot.kubernetes.dra.agent.claim_plan import ClaimPlan, ClaimPlanner
from aliquot.kubernetes.dra.agent.claim_store import ClaimStore, allocation_of, exists
from aliquot.kubernetes.dra.agent.claim_types import AllocatedClaim, ClaimSource
from aliquot.kubernetes.dra.agent.device_targets import DeviceTarget
from aliquot.kubernetes.dra.agent.prepare_ports import CdiNames, PreparedNode, PrepareListener
from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference, PreparedClaim, PreparedDevice
from aliquot.kubernetes.node_agent.pod_holders import held_by_pods
from aliquot.node.holders.prepared_claims import RecordedClaim

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

T = TypeVar("T")
Result = PreparedClaim | AliquotError
PATIENCE_S = 35.0
"""Seconds after which a claim that only waits for the lock is refused. A call is answered after 40 in any case, and
kubelet must get to know who has the lock.
"""
GATHER_S = 0.02
"""Seconds that the first claim waits for others: kubelet calls once for each pod."""
LOCK_POLL_S = 0.2
MOST_READS = 5
"""Attempts to plan, if other programs change the node between each read and the change."""


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """A claim that waits for its devices."""

    claim: AllocatedClaim
    done: asyncio.Future[Result]
    since: float


class ClaimPreparer:
    """Implements ``claim_service.ClaimService`` on the GPUs of a node.

    ``changed`` is called after each change of the prepared claims.
    """

    def __init__(
        self,
        node: PreparedNode,
        store: ClaimStore,
        source: ClaimSource,
        cdi: CdiNames,
        *,
        changed: Callable[[], None] = lambda: None,
        listener: PrepareListener | None = None,
    ) -> None:
        self._node = node
        self._store = store
        self._source = source
        self._cdi = cdi
        self._changed = changed
        self._listener = listener
        self._missing: dict[str, str] = {}
        self._warnings = NewWarnings(log)
        self._batches = 0
        self._closing = False
        self._queue: list[_Waiting] = []
        self._current: dict[str, asyncio.Future[Result]] = {}
        self._runner: asyncio.Task[None] | None = None

    # -- the service

    async def prepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, Result]:
        """Prepare claims. The answer has a prepared claim or an error for each uid."""
        started = time.monotonic()
        found = await asyncio.gather(*(self._known_or_allocated(reference) for reference in claims))
        waits = [self._enqueue(each) if isinstance(each, AllocatedClaim) else _done(each) for each in found]
        results = await asyncio.gather(*waits)
        for reference, result in zip(claims, results, strict=True):
            if isinstance(result, AliquotError):
                log.warning("%s is not prepared: %s", reference, result.one_line)
            if self._listener is not None:
                failed = isinstance(result, AliquotError)
                self._listener.record_claim("failed" if failed else "prepared", time.monotonic() - started)
        return {reference.uid: result for reference, result in zip(claims, results, strict=True)}

    async def unprepare(self, claims: Sequence[ClaimReference]) -> Mapping[str, AliquotError | None]:
        """Release claims. Their instances stay for a later claim until their room is needed."""
        ended = [self._current[each.uid] for each in claims if each.uid in self._current]
        if ended:
            await asyncio.wait(ended)
        known = [each for each in claims if self._store.get(each.uid) is not None]
        try:
            await self._store.remove({each.uid for each in known})
            for each in claims:
                await self._cdi.remove(each.uid)
        except AliquotError as error:
            return {each.uid: error for each in claims}
        for each in known:
            log.info("%s is released", each)
        if known:
            self._changed()
        return {each.uid: None for each in claims}

    async def restore(self) -> None:
        """Create the devices of prepared claims again that are gone, for example after a reboot.

        A claim that cannot be restored stays recorded, and kubelet's next call tries again. Raises AliquotError if the
        GPUs cannot be read.
        """
        records, boot, batches = self._store.records, await self._node.boot(), self._batches
        if not (records.claims or records.created):
            self._missing = {}
            return
        inventory = (await self._node.hardware.read())[0]
        if batches == self._batches and not self._current:
            await self._store.forget_destroyed(inventory)
        claims = records.claims
        lost = [c for c in claims if self._store.get(c.uid) is c and (c.boot != boot or not exists(c, inventory))]
        self._missing = {claim.uid: self._missing.get(claim.uid, "") for claim in lost}
        results = await asyncio.gather(*(self._enqueue(allocation_of(claim)) for claim in lost))
        refused = {c.uid: r.one_line for c, r in zip(lost, results, strict=True) if isinstance(r, AliquotError)}
        self._missing = {uid: refused.get(uid, why) for uid, why in self._missing.items()}
        self._warnings.update(tuple(f"a prepared claim lost its device: {text}" for text in refused.values()))

    @property
    def missing(self) -> Mapping[str, str]:
        """The prepared claims whose devices did not exist at the last ``restore``, and do not now: the reason by uid.

        The reason is empty while the devices are created again.
        """
        return dict(self._missing)

    async def close(self, hangs: Callable[[], bool] = lambda: False) -> None:
        """Wait for the change that runs, but not for another program, nor while ``hangs`` is true of the driver."""
        self._closing = True
        while self._runner is not None and not self._runner.done() and not hangs():
            await asyncio.wait((self._runner,), timeout=LOCK_POLL_S)

    # -- one claim

    async def _known_or_allocated(self, reference: ClaimReference) -> AllocatedClaim | Result:
        """Return the answer if the claim is prepared, else its allocation. An error is an answer too."""
        known = self._store.get(reference.uid)
        try:
            if known is not None and await self._is_ready(known):
                return answer(known)
            claim = await self._source.allocation(reference)
            if known is not None and allocation_of(known) != claim:
                log.warning("%s has other devices than it was prepared with: kubelet did not release it", reference)
                await self._store.remove((reference.uid,))
            return claim
        except ApiUnavailableError as error:
            return allocation_of(known) if known is not None else error
        except AliquotError as error:
            return error

    async def _is_ready(self, known: RecordedClaim) -> bool:
        """Report whether a prepared claim has its devices in this boot, as far as is known without a driver call."""
        ready = known.boot == await self._node.boot() and known.uid not in self._missing
        return ready and not self._source.is_known_to_differ(allocation_of(known))

    def _enqueue(self, claim: AllocatedClaim) -> Awaitable[Result]:
        """Queue a claim, and return what ends when it is prepared or refused.

        A caller that gives up does not stop the change.
        """
        uid = claim.reference.uid
        done = self._current.get(uid)
        if done is None:
            done = self._current[uid] = asyncio.get_running_loop().create_future()
            self._queue.append(_Waiting(claim, done, time.monotonic()))
            if self._runner is None or self._runner.done():
                self._runner = asyncio.create_task(self._run())
        return asyncio.shield(done)

    # -- several claims

    async def _run(self) -> None:
        """Prepare what waits, until nothing does."""
        await asyncio.sleep(GATHER_S)
        while self._queue:
            batch, self._queue = self._queue, []
            self._batches += 1
            try:
                await self._prepare_batch(batch)
            except AliquotError as error:
                self._settle(batch, error)
            except Exception as error:  # noqa: BLE001 -- a defect must not leave kubelet without an answer
                log.exception("internal error: report this, with the output of: aliquot version")
                self._settle(batch, AliquotError(f"internal error: {type(error).__name__}: {error}"))
            self._changed()

    async def _prepare_batch(self, batch: Sequence[_Waiting]) -> None:
        """Prepare claims together. If the change fails, prepare each alone, so that one bad GPU fails only its own.

        Raises the error of a single claim.
        """
        reads = 0
        unopened: Mapping[str, AliquotError] = {}
        while (left := [each for each in batch if not each.done.done()]) and reads < MOST_READS:
            try:
                unopened = await self._attempt(left)
                reads = 0 if any(each.done.done() for each in left) else reads + 1
            except StalePlanError:
                reads += 1
            except LockedError as error:
                if self._closing or any(time.monotonic() - each.since > PATIENCE_S for each in left):
                    raise
                log.debug("%s", error.brief)
                await asyncio.sleep(LOCK_POLL_S)
            except AliquotError as error:
                if len(left) == 1:
                    raise
                log.warning("%d claims cannot be prepared together: %s", len(left), error.one_line)
                for each in left:
                    await self._prepare_alone(each)
        text = "other programs keep changing the GPUs of this node"
        for each in left:
            moved = BlockedError(text, code="MOVED", next_step="aliquot history")
            self._settle((each,), unopened.get(each.claim.reference.uid, moved))

    async def _prepare_alone(self, waiting: _Waiting) -> None:
        try:
            await self._prepare_batch((waiting,))
        except AliquotError as error:
            self._settle((waiting,), error)

    async def _attempt(self, batch: Sequence[_Waiting]) -> Mapping[str, AliquotError]:
        """Plan, change, record, verify and answer. A claim whose devices are gone again gets no answer yet, and
        one whose devices VMs cannot open is returned with the reason.

        Raises AliquotError if nothing was prepared.
        """
        inventory = await self._read(batch)
        await self._store.forget_destroyed(inventory)
        records = self._store.records.in_boot(await self._node.boot())
        planner = ClaimPlanner(inventory, records, self._node.find, self._node.policy)
        planned = planner.plan([each.claim for each in batch])
        for each in batch:
            if (refusal := planned.refused.get(each.claim.reference.uid)) is not None:
                self._settle((each,), refusal)
        accepted = [each for each in batch if each.claim.reference.uid in planned.targets]
        if planned.plan.actions:
            inventory = await self._apply(planned)
        return await self._record(accepted, planned.targets, inventory) if accepted else {}

    async def _apply(self, planned: ClaimPlan) -> Inventory:
        await self._store.add_created(planned.created, await self._node.boot())
        started = time.monotonic()
        outcome = await self._node.hardware.apply(planned.plan, log.debug)
        if self._listener is not None:
            self._listener.record_apply(outcome, time.monotonic() - started)
        if outcome.error is not None:
            raise outcome.error
        return outcome.inventory

    async def _record(
        self, accepted: Sequence[_Waiting], targets: Mapping[str, Sequence[DeviceTarget]], inventory: Inventory
    ) -> Mapping[str, AliquotError]:
        """Record claims, then answer those whose devices still exist under the node's lock. Raises LockedError.

        Return the reasons of those whose devices VMs cannot open.
        """
        boot = await self._node.boot()
        files = await vm_files.read_files(
            [t for each in targets.values() for t in each], inventory, self._node.hardware
        )
        before = [c for c in self._store.records.claims if c.uid in targets]
        records: dict[str, RecordedClaim] = {}
        for each in accepted:
            made = claim_plan.record(each.claim, targets[each.claim.reference.uid], inventory, boot, files)
            if made is not None:
                records[made.uid] = await self._cdi.write(made, inventory)
        gone = set(records)
        await self._store.add(tuple(records.values()))
        try:
            now = await self._node.hardware.call(_read_locked)
            gone = {uid for uid, record in records.items() if not exists(record, now)}
        finally:
            if gone:
                await self._store.replace(gone, [c for c in before if c.uid in gone])
        for each in accepted:
            uid = each.claim.reference.uid
            if uid in records and uid not in gone:
                where = ", ".join(map(str, targets[uid]))
                log.info("%s is prepared in %.2f s: %s", each.claim.reference, time.monotonic() - each.since, where)
                self._missing.pop(uid, None)
                self._settle((each,), answer(records[uid]))
        found = {uid: vm_files.find_unopened(targets[uid], inventory, files) for uid in targets}
        return {uid: error for uid, error in found.items() if error is not None}

    async def _read(self, batch: Sequence[_Waiting]) -> Inventory:
        """Return the node with all holders. Of our own claims the record counts, and not kubelet's list."""
        inventory = (await self._node.hardware.read())[0]
        if self._node.uses is None:
            return inventory
        ours = {f"{c.namespace}/{c.name}" for c in self._store.records.claims}
        ours |= {f"{each.claim.reference.namespace}/{each.claim.reference.name}" for each in batch}
        uses = [use for use in await self._node.uses() if use.claim is None or use.claim.claim not in ours]
        return held_by_pods(inventory, uses)

    def _settle(self, batch: Iterable[_Waiting], result: Result) -> None:
        for each in batch:
            if not each.done.done():
                del self._current[each.claim.reference.uid]
                each.done.set_result(result)


async def _done(result: Result) -> Result:
    return result


def answer(claim: RecordedClaim) -> PreparedClaim:
    """Return what kubelet gets."""
    return PreparedClaim(
        claim.uid, tuple(PreparedDevice(d.requests, d.pool, d.device, d.cdi_ids) for d in claim.devices)
    )


def _read_locked(connection: Connection) -> Inventory:
    """Read the node while no other program changes it. Raises LockedError."""
    with connection.lock.hold():
        return connection.backend.read()
