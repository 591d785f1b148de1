"""Reading GPUs through nvidia-smi: one command for a node without instances, three for one with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.core.engine.programs import Ran
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Gpu
from aliquot.errors import AliquotError, HardwareError
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi import query_output as report
from aliquot.hardware.nvidia_smi.command import Smi, code_of
from aliquot.hardware.nvidia_smi.instances import Ids, Rows, filled
from aliquot.hardware.nvidia_smi.query_output import Log, Report
from aliquot.hardware.nvidia_smi.tables import SmiSource
from aliquot.hardware.nvml.tables import Tables

_ONE_BY_ONE = (codes.GPU_IS_LOST, codes.UNKNOWN, codes.RESET_REQUIRED)
"""What nvidia-smi says of the whole node when one GPU does not answer."""


class Card(msgspec.Struct):
    """A GPU's report and its index. ``handle`` is what its tables are read by."""

    pci_device: str
    subsystem: str
    product: str
    handle: object
    report: Report
    index: int


class Seen(msgspec.Struct, frozen=True):
    """One look at a node. ``log`` has no GPU that fell off the bus."""

    log: Log
    gpus: tuple[Gpu, ...]


class Reader:
    """``addresses`` are the GPUs that the kernel's driver has: asked for when nvidia-smi gives up on the whole node."""

    def __init__(self, smi: Smi, addresses: Callable[[], Iterable[str]]) -> None:
        self.tables = Tables(SmiSource(smi))
        self._smi = smi
        self._addresses = addresses
        self._known: dict[str, Gpu] = {}
        self._uuids: dict[Ids, str] = {}

    def forget(self) -> None:
        """GPUs have come or gone."""
        self._known.clear()

    def log(self) -> Log:
        """What is reported of the node and its GPUs, without their instances. Raises an AliquotError."""
        return self._log()[0]

    def node(self) -> Seen:
        """Every GPU, in the order of addresses; one that fell off the bus hides no other. Raises an AliquotError."""
        log, lost = self._log()
        if lost is None and not log.gpus:
            return Seen(log, ())
        gpus = self._together(log) if lost is None else [self._alone(each) for each in log.gpus]
        gpus += [self._lost(pci) for pci in lost or ()]
        gpus = [msgspec.structs.replace(g, index=n) for n, g in enumerate(sorted(gpus, key=lambda g: g.pci))]
        self._known = {g.pci: g for g in gpus}
        return Seen(log, tuple(gpus))

    def gpu(self, each: Report) -> Gpu:
        """A GPU that was just reported, with its instances."""
        return self._alone(each)

    def report(self, pci: str) -> Report:
        """One GPU, read afresh. Raises GpuLostError."""
        attempt = f"reading {pci}"
        ran = self._smi.run("-q", "-i", pci)
        if ran.status:
            raise self._smi.error(attempt, ran, ("-q", "-i", pci), pci)
        found = next((r for r in self._parsed(attempt, ran).gpus if r.pci == pci), None)
        if found is None:
            raise codes.error(codes.NOT_FOUND, f"looking for GPU {pci}", gpu=pci)
        return found

    # -- reports

    def _log(self) -> tuple[Log, list[str] | None]:
        """The report; and where the GPUs had to be asked one by one, those that do not answer."""
        attempt = "reading the GPUs"
        ran = self._smi.run("-q")
        if ran.status == 0:
            return self._parsed(attempt, ran), None
        if code_of(ran) == codes.NOT_FOUND:
            return Log("", "", ()), None
        if code_of(ran) in _ONE_BY_ONE:
            return self._apart(self._smi.error(attempt, ran, ("-q",)))
        raise self._smi.error(attempt, ran, ("-q",))

    def _parsed(self, attempt: str, ran: Ran) -> Log:
        try:
            return report.parse(ran.out)
        except ValueError as nonsense:
            raise HardwareError(
                f"{attempt} failed: nvidia-smi -q says what nobody understands",
                details=(str(nonsense), self._smi.programs.place),
                next_step="compare with the output of: nvidia-smi -q",
            ) from nonsense

    def _apart(self, refusal: AliquotError) -> tuple[Log, list[str]]:
        """GPU by GPU: what answers, and the addresses that do not. Raises ``refusal`` where none does."""
        logs: list[Log] = []
        lost: list[str] = []
        for pci in sorted({*self._known, *self._addresses()}):
            ran = self._smi.run("-q", "-i", pci)
            if ran.status == 0:
                logs.append(self._parsed(f"reading {pci}", ran))
            elif code_of(ran) in (*_ONE_BY_ONE, codes.NOT_FOUND):
                lost.append(pci)
            else:
                raise self._smi.error(f"reading {pci}", ran, ("-q", "-i", pci), pci)
        if not logs:
            raise refusal
        return msgspec.structs.replace(logs[0], gpus=tuple(r for log in logs for r in log.gpus)), lost

    def _lost(self, pci: str) -> Gpu:
        """What was known of it before; a stranger has only its address."""
        before = self._known.get(pci)
        if before is None:
            return Gpu(pci=pci, uuid="", index=-1, product="GPU that fell off the bus", lost=True)
        return Gpu(
            pci=pci,
            uuid=before.uuid,
            index=before.index,
            product=before.product,
            pci_device=before.pci_device,
            subsystem=before.subsystem,
            lost=True,
        )

    # -- GPUs

    def _together(self, log: Log) -> list[Gpu]:
        """All GPUs with one command per list. MIG GPUs first: only they tell placements, and each product's table is
        read once. The report has the GPUs in the order of their indexes, by which the lists name them.
        """
        cut = any(r.mig.enabled for r in log.gpus)
        instances, compute = self._instances() if cut else ((), ())
        cards = [_card(each, number) for number, each in enumerate(log.gpus)]
        rows = {
            c.index: Rows(
                tuple(i for i in instances if i.gpu == c.index), tuple(i for i in compute if i.gpu == c.index)
            )
            for c in cards
        }
        if any(self._nameless(c.report, rows[c.index]) for c in cards):
            named = lists.gpus(self._smi.ok("listing the GPUs", "-L"))
            for card in cards if self._compute() == compute else ():
                self._learn(card.report, rows[card.index], named)
        order = sorted(cards, key=lambda c: not c.report.mig.enabled)
        found = {c.index: self._filled(c, rows[c.index]) for c in order}
        return [found[c.index] for c in cards]

    def _alone(self, each: Report) -> Gpu:
        index = self._known[each.pci].index if each.pci in self._known else -1
        rows = Rows(*self._instances(each.pci)) if each.mig.enabled else Rows()
        if index < 0 or self._nameless(each, rows):
            named = lists.gpus(self._smi.ok(f"listing {each.pci}", "-L", "-i", each.pci, gpu=each.pci))
            if rows.compute and self._compute(each.pci) == rows.compute:
                self._learn(each, rows, named)
            index = next((n.index for n in named if n.uuid == each.uuid and index < 0), index)
        return self._filled(_card(each, index), rows)

    def _nameless(self, each: Report, rows: Rows) -> bool:
        """Whether a MIG device's UUID is not known. They follow from the GPU and the two ids since R470, so that one
        look at each is enough.
        """
        return any((each.uuid, c.instance, c.compute) not in self._uuids for c in rows.compute)

    def _learn(self, each: Report, rows: Rows, named: Sequence[lists.Listed]) -> None:
        """``-L`` has MIG devices in the order of GPU instance and compute instance. It is believed where the list of
        compute instances was the same before and after: a UUID that was given to the wrong one would stay there.
        """
        order = sorted((c.instance, c.compute) for c in rows.compute)
        uuids = next((n.mig for n in named if n.uuid == each.uuid), ())
        if len(order) == len(uuids):
            self._uuids |= {(each.uuid, *ids): uuid for ids, (_, uuid) in zip(order, uuids, strict=True)}

    def _instances(self, pci: str = "") -> tuple[tuple[lists.Instance, ...], tuple[lists.Instance, ...]]:
        """GPU instances and compute instances, of one GPU or of all."""
        at = ("-i", pci) if pci else ()
        attempt = f"listing the instances of {pci or 'all GPUs'}"
        inside = lists.instances(self._smi.listed(attempt, "mig", *at, "-lgi", gpu=pci))
        return (inside, self._compute(pci)) if inside else ((), ())

    def _compute(self, pci: str = "") -> tuple[lists.Instance, ...]:
        at = ("-i", pci) if pci else ()
        attempt = f"listing the compute instances of {pci or 'all GPUs'}"
        return lists.compute_instances(self._smi.listed(attempt, "mig", *at, "-lci", gpu=pci))

    def _filled(self, card: Card, rows: Rows) -> Gpu:
        each = card.report
        table = self.tables.of(card, each.mig)
        bare = Gpu(
            pci=each.pci,
            uuid=each.uuid,
            index=card.index,
            product=each.product,
            pci_device=each.pci_device,
            subsystem=each.subsystem,
            minor=each.minor,
            family=None if table is None else table.name,
            mig=each.mig,
            reset=each.resettable,
        )
        if not each.mig.enabled or table is None:
            return msgspec.structs.replace(bare, holders=tuple(dict.fromkeys(h for _, _, h in each.processes)))
        return filled(bare, table, rows, self._uuids, each.processes)


def _card(each: Report, index: int) -> Card:
    return Card(each.pci_device, each.subsystem, each.product, each, each, index)
