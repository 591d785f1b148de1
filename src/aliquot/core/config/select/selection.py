"""The selection of this node's GPUs by the entries of a named config."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from shlex import quote

import msgspec

from aliquot.core.config.file import MIG, NATIVE, PASSTHROUGH, VGPU_DEVICE_MANAGER, ConfigEntry, ConfigFile
from aliquot.core.config.select import mig_entries as mig_share
from aliquot.core.config.select import vgpu_entries as vgpu_share
from aliquot.core.config.select.gpu_text import gpu_text, gpus_text
from aliquot.core.config.select.selection_report import SelectionReport
from aliquot.core.config.select.vgpu_lookup import belongs_to_other_product
from aliquot.core.config.text.diagnostics import located, place
from aliquot.core.model.desired import Desired, DesiredGpu, ResolutionFailure, RuleCode
from aliquot.core.model.inventory import Gpu, Inventory

_LISTED = 12
"""Maximum number of lines that a note lists."""


class ConfigSelection:
    """A pass over the entries of a named config; `select` returns the desired state."""

    def __init__(self, config: ConfigFile, name: str, inventory: Inventory) -> None:
        self.config = config
        self.name = name
        self.inventory = inventory
        self.report = SelectionReport(config, inventory)
        self.unmatched: list[ConfigEntry] = []
        self.claims: dict[str, list[tuple[ConfigEntry, DesiredGpu | None]]] = {gpu.pci: [] for gpu in inventory.gpus}

    def select(self, entries: Sequence[ConfigEntry]) -> Desired:
        matched = [self.entry(entry, entries) for entry in entries]
        self.report.errors.check()
        if not any(matched) and not self.report.failures:
            self.nothing_matches()
        elif any(matched) and any(entry.line for entry in self.unmatched):  # those of a command line are failures
            lines = ", ".join(
                [str(entry.line) for entry in self.unmatched[:_LISTED]] + ["..."] * (len(self.unmatched) > _LISTED)
            )
            self.report.notes.append(
                f"{len(self.unmatched)} of {len(entries)} entries of {self.name!r} match no GPU here "
                f"({self.config.source} {'line' if len(self.unmatched) == 1 else 'lines'} {lines})"
            )
        desired_gpus = [self.desired_gpu(gpu) for gpu in self.inventory.gpus]
        return Desired(
            gpus=tuple(w for w in desired_gpus if w is not None),
            name=self.name,
            notes=tuple(dict.fromkeys(self.report.notes)),
            failures=tuple(dict.fromkeys(self.report.failures)),
        )

    def entry(self, entry: ConfigEntry, entries: Sequence[ConfigEntry]) -> bool:
        """Process one entry. Returns False if it matches no GPU here."""
        gpus = [gpu for gpu in self.inventory.gpus if entry.selector.matches(gpu)]
        self.missing(entry)
        mine = [gpu for gpu in gpus if not self.is_for_another_product(entry, gpu, entries)]
        mine = self.without_passthrough(entry, mine)
        claims = mig_share.claims if entry.share == MIG else vgpu_share.claims
        found, matched = claims(self.report, entry, mine)
        for gpu, wanted in found:
            self.claims[gpu.pci].append((entry, wanted))
        if not gpus:
            self.unmatched.append(entry)
        return matched

    def without_passthrough(self, entry: ConfigEntry, gpus: Sequence[Gpu]) -> list[Gpu]:
        """Return the GPUs without those in passthrough, which only an entry of our own format that does not just say
        ``all`` may change. The tools whose files we read do not even see these GPUs.
        """
        if entry.share == PASSTHROUGH or (self.config.schema == NATIVE and not entry.selector.everything):
            return list(gpus)
        passed_through = [gpu for gpu in gpus if gpu.passthrough]
        if passed_through:
            verb = "is" if len(passed_through) == 1 else "are"
            self.report.notes.append(f"{gpus_text(passed_through)} {verb} passed through to VMs and {verb} left alone")
            self.report.missing_capability = "is available for this: see aliquot passthrough list"
        return [gpu for gpu in gpus if not gpu.passthrough]

    def is_for_another_product(self, entry: ConfigEntry, gpu: Gpu, entries: Sequence[ConfigEntry]) -> bool:
        """Report whether an entry of vgpu-device-manager's format names types of another board with the GPU's PCI id,
        while a second entry is for this one. Its filters may match both boards, as those of the shipped file do.
        """
        if self.config.schema != VGPU_DEVICE_MANAGER or not belongs_to_other_product(self.inventory, gpu, entry.types):
            return False
        others = (e for e in entries if e is not entry and e.selector.matches(gpu))
        return any(not belongs_to_other_product(self.inventory, gpu, other.types) for other in others)

    def missing(self, entry: ConfigEntry) -> None:
        """Report GPUs that the entry names one by one and that are absent."""
        selector, gpus = entry.selector, self.inventory.gpus
        if not any(selector.class_matches(gpu) for gpu in gpus):
            return
        for what, wanted, present in (
            ("index", selector.indexes, {gpu.index for gpu in gpus}),
            ("UUID", selector.uuids, {gpu.uuid.lower() for gpu in gpus}),
            ("PCI address", selector.pcis, {gpu.pci for gpu in gpus}),
        ):
            absent = [str(one) for one in wanted or () if one not in present]
            absent = [one for one in absent if not self.is_a_function(entry, one)]
            if not absent:
                continue
            sentence = f"no GPU with the {what} {', '.join(absent)} on this node"
            if self.config.compat or self.config.fleet:
                self.report.notes.append(str(located(self.config.source, entry, sentence)))
            else:
                sentence = f"{sentence} (it has {len(gpus)})"
                self.report.block("NO_SUCH_GPU", entry, sentence, next_step="aliquot show")

    def is_a_function(self, entry: ConfigEntry, pci: str) -> bool:
        """Report the address of a virtual function, with the command to type: a GPU is named by its own address."""
        owner, number = self.inventory.find_function(pci) or (None, 0)
        if owner is None or self.config.compat:
            return False
        next_step, advice = f"aliquot show {owner.pci}", "name the GPU itself"
        if entry.share == PASSTHROUGH:
            next_step = f"aliquot passthrough {'enable' if entry.on else 'disable'} {pci}"
            advice = "this is for whole GPUs"
        elif entry.types:
            types = quote(",".join(f"{request.name}:{request.count}" for request in entry.types))
            next_step = f"aliquot plan --gpu {owner.pci} --vgpu {types}" + " --mixed-size" * bool(entry.mixed_size)
        sentence = f"{pci} is virtual function {number} of {gpu_text(owner)}: {advice}"
        self.report.block("NO_SUCH_GPU", entry, sentence, owner.pci, next_step)
        return True

    def desired_gpu(self, gpu: Gpu) -> DesiredGpu | None:
        claims = self.claims[gpu.pci]
        if not claims or any(wanted is None for _, wanted in claims):
            return None
        last, wanted = claims[-1]
        assert wanted is not None
        if not self.config.compat:
            for entry, other in claims[:-1]:
                if not same(wanted, other):
                    first = place(self.config.source, entry)
                    sentence = f"this entry and {first} are overlapping entries with different requests for"
                    self.report.block("OVERLAP", last, f"{sentence} {gpu_text(gpu)}", gpu.pci)
                    return None
        return msgspec.structs.replace(wanted, pci=gpu.pci, source=place(self.config.source, last))

    def nothing_matches(self) -> None:
        products = ", ".join(dict.fromkeys(gpu.product for gpu in self.inventory.gpus)) or "no GPU"
        missing_capability = self.report.missing_capability
        what = f"{self.config.source}: {self.name!r}" if self.name else "the request"
        rule: RuleCode = "NOT_CAPABLE" if missing_capability else "NOTHING_MATCHES"
        reason = missing_capability or "matches any of its entries"
        none_capable = not any(gpu.lost or gpu.mig.capable for gpu in self.inventory.gpus)
        elsewhere = (
            self.config.fleet and none_capable if missing_capability else self.config.compat or self.config.fleet
        )
        if elsewhere and self.config.schema != NATIVE:
            self.report.notes.append(f"{what} matches no GPU of this node (it has {products})")
            return
        sentence = f"{what} cannot be applied here: no GPU of this node {reason} (this node has {products})"
        self.report.failures.append(ResolutionFailure(rule, sentence, step="aliquot show"))


def same(one: DesiredGpu, other: DesiredGpu | None) -> bool:
    """Report whether two desired states of one GPU are equal, in any order."""
    return other is not None and _wanted(one) == _wanted(other)


def _wanted(desired_gpu: DesiredGpu) -> tuple[object, ...]:
    instances = None if desired_gpu.instances is None else Counter(desired_gpu.instances)
    vgpus = None if desired_gpu.vgpus is None else Counter(desired_gpu.vgpus)
    modes = desired_gpu.functions, desired_gpu.mixed_size, desired_gpu.scheduler, desired_gpu.passthrough
    return desired_gpu.mig, instances, vgpus, *modes
