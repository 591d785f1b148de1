"""Reading GPUs through nvidia-smi: one command for a node without instances, three for a node with instances."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.core.engine.programs import ProgramResult
from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.inventory import Gpu
from aliquot.errors import AliquotError, HardwareError
from aliquot.hardware.nvidia_smi import list_output as lists
from aliquot.hardware.nvidia_smi import query_output as report
from aliquot.hardware.nvidia_smi.command import Smi, code_of
from aliquot.hardware.nvidia_smi.instances import InstanceRows, MigDeviceIds, with_instances
from aliquot.hardware.nvidia_smi.query_output import GpuReport, Log
from aliquot.hardware.nvidia_smi.tables import SmiSource
from aliquot.hardware.nvml.tables import Tables

_ONE_BY_ONE = (codes.GPU_IS_LOST, codes.UNKNOWN, codes.RESET_REQUIRED)
"""What nvidia-smi reports for the whole node when one GPU does not answer."""


class SmiGpu(msgspec.Struct):
    """A GPU's report and its index. ``handle`` is the key to read its tables."""

    pci_device: str
    subsystem: str
    product: str
    handle: object
    report: GpuReport
    index: int


class SmiReading(msgspec.Struct, frozen=True):
    """The result of reading a node. ``log`` omits GPUs that fell off the bus."""

    log: Log
    gpus: tuple[Gpu, ...]


class SmiReader:
    """Reads a node's GPUs. ``addresses`` are the GPUs of the kernel's driver, for the case that nvidia-smi fails for
    the whole node.
    """

    def __init__(self, smi: Smi, addresses: Callable[[], Iterable[str]]) -> None:
        self.tables = Tables(SmiSource(smi))
        self._smi = smi
        self._addresses = addresses
        self._known: dict[str, Gpu] = {}
        self._uuids: dict[MigDeviceIds, str] = {}

    def forget(self) -> None:
        """Forget known GPUs: some have appeared or disappeared."""
        self._known.clear()

    def log(self) -> Log:
        """Return the report of the node and its GPUs, without their instances. Raises an AliquotError."""
        return self._log()[0]

    def read_node(self) -> SmiReading:
        """Return all GPUs, in the order of addresses. A GPU that fell off the bus does not hide the others. Raises an
        AliquotError.
        """
        log, lost = self._log()
        if lost is None and not log.gpus:
            return SmiReading(log, ())
        gpus = self._read_together(log) if lost is None else [self._read_one(gpu_report) for gpu_report in log.gpus]
        gpus += [self._lost(pci) for pci in lost or ()]
        gpus = [msgspec.structs.replace(g, index=n) for n, g in enumerate(sorted(gpus, key=lambda g: g.pci))]
        self._known = {g.pci: g for g in gpus}
        return SmiReading(log, tuple(gpus))

    def gpu(self, gpu_report: GpuReport) -> Gpu:
        """Return a GPU that was just reported, with its instances."""
        return self._read_one(gpu_report)

    def report(self, pci: str) -> GpuReport:
        """Read the report of one GPU again. Raises GpuLostError."""
        attempt = f"reading {pci}"
        result = self._smi.run("-q", "-i", pci)
        if result.status:
            raise self._smi.error(attempt, result, ("-q", "-i", pci), pci)
        found = next((r for r in self._parse(attempt, result).gpus if r.pci == pci), None)
        if found is None:
            raise codes.error(codes.NOT_FOUND, f"looking for GPU {pci}", gpu=pci)
        return found

    # -- reports

    def _log(self) -> tuple[Log, list[str] | None]:
        """Return the report. If the GPUs had to be read one by one, also return the addresses of those that do not
        answer.
        """
        attempt = "reading the GPUs"
        result = self._smi.run("-q")
        if result.status == 0:
            return self._parse(attempt, result), None
        if code_of(result) == codes.NOT_FOUND:
            return Log("", "", ()), None
        if code_of(result) in _ONE_BY_ONE:
            return self._read_one_by_one(self._smi.error(attempt, result, ("-q",)))
        raise self._smi.error(attempt, result, ("-q",))

    def _parse(self, attempt: str, result: ProgramResult) -> Log:
        try:
            return report.parse(result.out)
        except ValueError as malformed:
            raise HardwareError(
                f"{attempt} failed: the output of nvidia-smi -q cannot be parsed",
                details=(str(malformed), self._smi.programs.location),
                next_step="compare with the output of: nvidia-smi -q",
            ) from malformed

    def _read_one_by_one(self, refusal: AliquotError) -> tuple[Log, list[str]]:
        """Read GPU by GPU. Return the combined report and the addresses that do not answer. Raises ``refusal`` if none
        answers.
        """
        logs: list[Log] = []
        lost: list[str] = []
        for pci in sorted({*self._known, *self._addresses()}):
            result = self._smi.run("-q", "-i", pci)
            if result.status == 0:
                logs.append(self._parse(f"reading {pci}", result))
            elif code_of(result) in (*_ONE_BY_ONE, codes.NOT_FOUND):
                lost.append(pci)
            else:
                raise self._smi.error(f"reading {pci}", result, ("-q", "-i", pci), pci)
        if not logs:
            raise refusal
        return msgspec.structs.replace(logs[0], gpus=tuple(r for log in logs for r in log.gpus)), lost

    def _lost(self, pci: str) -> Gpu:
        """Return a lost GPU with its last known values; only its address if it was never read."""
        previous = self._known.get(pci)
        if previous is None:
            return Gpu(pci=pci, uuid="", index=-1, product="GPU that fell off the bus", lost=True)
        return Gpu(
            pci=pci,
            uuid=previous.uuid,
            index=previous.index,
            product=previous.product,
            pci_device=previous.pci_device,
            subsystem=previous.subsystem,
            lost=True,
        )

    # -- GPUs

    def _read_together(self, log: Log) -> list[Gpu]:
        """Return all GPUs with one command per list.

        MIG GPUs come first: only they list placements, and each product's table is read once. The report has the GPUs
        in the order of their indexes, which the lists use.
        """
        partitioned = any(r.mig.enabled for r in log.gpus)
        instances, compute = self._instances() if partitioned else ((), ())
        smi_gpus = [_smi_gpu(gpu_report, number) for number, gpu_report in enumerate(log.gpus)]
        rows = {
            c.index: InstanceRows(
                tuple(i for i in instances if i.gpu == c.index), tuple(i for i in compute if i.gpu == c.index)
            )
            for c in smi_gpus
        }
        if any(self._has_unknown_uuid(c.report, rows[c.index]) for c in smi_gpus):
            listed_gpus = lists.parse_gpus(self._smi.run_checked("listing the GPUs", "-L"))
            for smi_gpu in smi_gpus if self._compute() == compute else ():
                self._learn(smi_gpu.report, rows[smi_gpu.index], listed_gpus)
        order = sorted(smi_gpus, key=lambda c: not c.report.mig.enabled)
        found = {c.index: self._with_instances(c, rows[c.index]) for c in order}
        return [found[c.index] for c in smi_gpus]

    def _read_one(self, gpu_report: GpuReport) -> Gpu:
        index = self._known[gpu_report.pci].index if gpu_report.pci in self._known else -1
        rows = InstanceRows(*self._instances(gpu_report.pci)) if gpu_report.mig.enabled else InstanceRows()
        if index < 0 or self._has_unknown_uuid(gpu_report, rows):
            listed_gpus = lists.parse_gpus(
                self._smi.run_checked(f"listing {gpu_report.pci}", "-L", "-i", gpu_report.pci, gpu=gpu_report.pci)
            )
            if rows.compute and self._compute(gpu_report.pci) == rows.compute:
                self._learn(gpu_report, rows, listed_gpus)
            index = next((n.index for n in listed_gpus if n.uuid == gpu_report.uuid and index < 0), index)
        return self._with_instances(_smi_gpu(gpu_report, index), rows)

    def _has_unknown_uuid(self, gpu_report: GpuReport, rows: InstanceRows) -> bool:
        """Return whether the UUID of a MIG device is unknown. Since R470 it follows from the GPU and the two ids, so it
        is read once.
        """
        return any((gpu_report.uuid, c.instance, c.compute) not in self._uuids for c in rows.compute)

    def _learn(self, gpu_report: GpuReport, rows: InstanceRows, listed_gpus: Sequence[lists.ListedGpu]) -> None:
        """Store the UUIDs of MIG devices from ``-L``, which lists them in the order of GPU instance and compute
        instance. Callers check that the compute instances did not change meanwhile, because a wrong UUID would be kept.
        """
        order = sorted((c.instance, c.compute) for c in rows.compute)
        uuids = next((n.mig_devices for n in listed_gpus if n.uuid == gpu_report.uuid), ())
        if len(order) == len(uuids):
            self._uuids |= {(gpu_report.uuid, *ids): uuid for ids, (_, uuid) in zip(order, uuids, strict=True)}

    def _instances(self, pci: str = "") -> tuple[tuple[lists.ListedInstance, ...], tuple[lists.ListedInstance, ...]]:
        """Return the GPU instances and compute instances, of one GPU or of all."""
        selector = ("-i", pci) if pci else ()
        attempt = f"listing the instances of {pci or 'all GPUs'}"
        gpu_instances = lists.parse_instances(self._smi.run_listing(attempt, "mig", *selector, "-lgi", gpu=pci))
        return (gpu_instances, self._compute(pci)) if gpu_instances else ((), ())

    def _compute(self, pci: str = "") -> tuple[lists.ListedInstance, ...]:
        selector = ("-i", pci) if pci else ()
        attempt = f"listing the compute instances of {pci or 'all GPUs'}"
        return lists.parse_compute_instances(self._smi.run_listing(attempt, "mig", *selector, "-lci", gpu=pci))

    def _with_instances(self, smi_gpu: SmiGpu, rows: InstanceRows) -> Gpu:
        gpu_report = smi_gpu.report
        table = self.tables.for_gpu(smi_gpu, gpu_report.mig)
        bare = Gpu(
            pci=gpu_report.pci,
            uuid=gpu_report.uuid,
            index=smi_gpu.index,
            product=gpu_report.product,
            pci_device=gpu_report.pci_device,
            subsystem=gpu_report.subsystem,
            minor=gpu_report.minor,
            family=None if table is None else table.name,
            mig=gpu_report.mig,
            resettable=gpu_report.resettable,
        )
        if not gpu_report.mig.enabled or table is None:
            return msgspec.structs.replace(bare, holders=tuple(dict.fromkeys(h for _, _, h in gpu_report.processes)))
        return with_instances(bare, table, rows, self._uuids, gpu_report.processes)


def _smi_gpu(gpu_report: GpuReport, index: int) -> SmiGpu:
    return SmiGpu(gpu_report.pci_device, gpu_report.subsystem, gpu_report.product, gpu_report, gpu_report, index)
