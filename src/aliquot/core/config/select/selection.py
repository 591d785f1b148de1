"""Bringing the entries of a named config together with the GPUs that are here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from shlex import quote

import msgspec

from aliquot.core.config.file import MIG, NATIVE, PASSTHROUGH, VGPU_DEVICE_MANAGER, ConfigFile, Entry
from aliquot.core.config.select import mig_entries as mig_share
from aliquot.core.config.select import vgpu_entries as vgpu_share
from aliquot.core.config.select.gpu_text import gpu_text, gpus_text
from aliquot.core.config.select.selection_report import Report
from aliquot.core.config.select.vgpu_lookup import belongs_elsewhere
from aliquot.core.config.text.diagnostics import place
from aliquot.core.model.desired import Desired, Fault, GpuWish
from aliquot.core.model.inventory import Gpu, Inventory

_LISTED = 12
"""Lines that a note lists at most."""


class Selection:
    """One pass over the entries of a named config; `select` gives the wish."""

    def __init__(self, config: ConfigFile, name: str, inventory: Inventory) -> None:
        self.config = config
        self.name = name
        self.inventory = inventory
        self.report = Report(config, inventory)
        self.idle: list[Entry] = []
        self.claims: dict[str, list[tuple[Entry, GpuWish | None]]] = {gpu.pci: [] for gpu in inventory.gpus}

    def select(self, entries: Sequence[Entry]) -> Desired:
        matched = [self.entry(entry, entries) for entry in entries]
        self.report.wrong.check()
        if not any(matched) and not self.report.faults:
            self.nothing_matches()
        elif self.idle and any(matched):
            lines = ", ".join([str(entry.line) for entry in self.idle[:_LISTED]] + ["..."] * (len(self.idle) > _LISTED))
            self.report.notes.append(
                f"{len(self.idle)} of {len(entries)} entries of {self.name!r} match no GPU here "
                f"({self.config.source} {'line' if len(self.idle) == 1 else 'lines'} {lines})"
            )
        wishes = [self.wish(gpu) for gpu in self.inventory.gpus]
        return Desired(
            gpus=tuple(w for w in wishes if w is not None),
            name=self.name,
            notes=tuple(dict.fromkeys(self.report.notes)),
            faults=tuple(dict.fromkeys(self.report.faults)),
        )

    def entry(self, entry: Entry, entries: Sequence[Entry]) -> bool:
        """Takes one entry in. False if it matches no GPU here."""
        gpus = [gpu for gpu in self.inventory.gpus if entry.selector.matches(gpu)]
        self.missing(entry)
        mine = [gpu for gpu in gpus if not self.is_for_another_board(entry, gpu, entries)]
        mine = self.here(entry, mine)
        claims = mig_share.claims if entry.share == MIG else vgpu_share.claims
        found, matched = claims(self.report, entry, mine)
        for gpu, wanted in found:
            self.claims[gpu.pci].append((entry, wanted))
        if not gpus:
            self.idle.append(entry)
        return matched

    def here(self, entry: Entry, gpus: Sequence[Gpu]) -> list[Gpu]:
        """The GPUs without those that are handed out whole. To such a GPU only an entry of our own format speaks that
        means it and not simply all: the tools whose files we read do not even see it.
        """
        if entry.share == PASSTHROUGH or (self.config.schema == NATIVE and not entry.selector.everything):
            return list(gpus)
        away = [gpu for gpu in gpus if gpu.passthrough]
        if away:
            verb = "is" if len(away) == 1 else "are"
            self.report.notes.append(f"{gpus_text(away)} {verb} handed out to virtual machines and {verb} left alone")
            self.report.left_alone = "is here for this: see aliquot passthrough list"
        return [gpu for gpu in gpus if not gpu.passthrough]

    def is_for_another_board(self, entry: Entry, gpu: Gpu, entries: Sequence[Entry]) -> bool:
        """Whether an entry of vgpu-device-manager's format names types of another board with the GPU's PCI id, while
        a second entry is for this one: its filters need not tell the boards apart, and the shipped file's do not.
        """
        if self.config.schema != VGPU_DEVICE_MANAGER or not belongs_elsewhere(self.inventory, gpu, entry.types):
            return False
        others = (e for e in entries if e is not entry and e.selector.matches(gpu))
        return any(not belongs_elsewhere(self.inventory, gpu, other.types) for other in others)

    def missing(self, entry: Entry) -> None:
        """Blocks for GPUs that were named one by one and are not here."""
        selector, here = entry.selector, self.inventory.gpus
        if not any(selector.class_matches(gpu) for gpu in here):
            return
        for what, wanted, present in (
            ("index", selector.indexes, {gpu.index for gpu in here}),
            ("UUID", selector.uuids, {gpu.uuid.lower() for gpu in here}),
            ("PCI address", selector.pcis, {gpu.pci for gpu in here}),
        ):
            absent = [str(one) for one in wanted or () if one not in present]
            absent = [one for one in absent if not self.is_a_function(entry, one)]
            if not absent:
                continue
            sentence = f"there is no GPU with the {what} {', '.join(absent)} here"
            if self.config.compat or self.config.fleet:
                self.report.notes.append(f"{place(self.config.source, entry)}: {sentence}")
            else:
                sentence = f"{sentence} (this node has {len(here)})"
                self.report.block("NO_SUCH_GPU", entry, sentence, next_step="aliquot show")

    def is_a_function(self, entry: Entry, pci: str) -> bool:
        """Blocks for the address of a virtual function, with what to type: a GPU is named by its own."""
        owner, number = self.inventory.owner(pci) or (None, 0)
        if owner is None or self.config.compat:
            return False
        next_step, way = f"aliquot show {owner.pci}", "name the GPU itself"
        if entry.share == PASSTHROUGH:
            next_step, way = (
                f"aliquot passthrough {'enable' if entry.on else 'disable'} {pci}",
                "this is for whole GPUs",
            )
        elif entry.types:
            types = quote(",".join(f"{wish.name}:{wish.count}" for wish in entry.types))
            next_step = f"aliquot plan --gpu {owner.pci} --vgpu {types}" + " --mixed-size" * bool(entry.mixed)
        sentence = f"{pci} is virtual function {number} of {gpu_text(owner)}: {way}"
        self.report.block("NO_SUCH_GPU", entry, sentence, owner.pci, next_step)
        return True

    def wish(self, gpu: Gpu) -> GpuWish | None:
        claims = self.claims[gpu.pci]
        if not claims or any(wanted is None for _, wanted in claims):
            return None
        last, wanted = claims[-1]
        assert wanted is not None
        if not self.config.compat:
            for entry, other in claims[:-1]:
                if not same(wanted, other):
                    first = place(self.config.source, entry)
                    sentence = f"this entry and {first} are overlapping entries that want different things of"
                    self.report.block("OVERLAP", last, f"{sentence} {gpu_text(gpu)}", gpu.pci)
                    return None
        return msgspec.structs.replace(wanted, pci=gpu.pci, source=place(self.config.source, last))

    def nothing_matches(self) -> None:
        here = ", ".join(dict.fromkeys(gpu.product for gpu in self.inventory.gpus)) or "no GPU"
        able = self.report.left_alone
        what = f"{self.config.source}: {self.name!r}" if self.name else "the wish"
        rule = "NOT_CAPABLE" if able else "NOTHING_MATCHES"
        reason = able or "is meant by any of its entries"
        none_capable = not any(gpu.lost or gpu.mig.capable for gpu in self.inventory.gpus)
        elsewhere = self.config.fleet and none_capable if able else self.config.compat or self.config.fleet
        if elsewhere and self.config.schema != NATIVE:
            self.report.notes.append(f"{what} is for no GPU of this node (it has {here})")
            return
        sentence = f"{what} cannot be met here: no GPU of this node {reason} (this node has {here})"
        self.report.faults.append(Fault(rule, sentence, next_step="aliquot show"))


def same(one: GpuWish, other: GpuWish | None) -> bool:
    """Whether two wishes for one GPU are the same, whatever their order."""
    return other is not None and _wanted(one) == _wanted(other)


def _wanted(wish: GpuWish) -> tuple[object, ...]:
    instances = None if wish.instances is None else Counter(wish.instances)
    vgpus = None if wish.vgpus is None else Counter(wish.vgpus)
    return wish.mig, instances, vgpus, wish.functions, wish.mixed, wish.passthrough
