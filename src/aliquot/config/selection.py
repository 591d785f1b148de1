"""Bringing the entries of a named config together with the GPUs that are here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aliquot.config.faults import Faults, Marked, place
from aliquot.config.file import ConfigFile, Entry
from aliquot.config.names import known, owners, profile_names
from aliquot.config.reading import close
from aliquot.config.resolve import Problem, resolve
from aliquot.config.selector import packed
from aliquot.config.texts import gpu_text, gpus_text
from aliquot.model import catalog
from aliquot.model.catalog import Family
from aliquot.model.desired import Desired, Fault, GpuWish, InstanceWish
from aliquot.model.inventory import Gpu, Inventory

Wanted = tuple[bool, tuple[InstanceWish, ...]]


class Selection:
    """One pass over the entries of a named config; `select` gives the wish."""

    def __init__(self, config: ConfigFile, name: str, inventory: Inventory) -> None:
        self.config = config
        self.name = name
        self.inventory = inventory
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self.wrong = Faults(config.source)
        self.idle: list[Entry] = []
        self.left_alone = False
        self.claims: dict[str, list[tuple[Entry, Wanted | None]]] = {gpu.pci: [] for gpu in inventory.gpus}

    def select(self, entries: Sequence[Entry]) -> Desired:
        matched = [self.entry(entry) for entry in entries]
        self.wrong.check()
        if not any(matched) and not self.faults:
            self.nothing_matches()
        elif self.idle and any(matched):
            lines = ", ".join(str(entry.line) for entry in self.idle)
            self.notes.append(
                f"{len(self.idle)} of {len(entries)} entries of {self.name!r} match no GPU here "
                f"({self.config.source} {'line' if len(self.idle) == 1 else 'lines'} {lines})"
            )
        wishes = [self.wish(gpu) for gpu in self.inventory.gpus]
        return Desired(
            gpus=tuple(w for w in wishes if w is not None),
            name=self.name,
            notes=tuple(dict.fromkeys(self.notes)),
            faults=tuple(dict.fromkeys(self.faults)),
        )

    def entry(self, entry: Entry) -> bool:
        """Takes one entry in. False if it matches no GPU here."""
        gpus = [gpu for gpu in self.inventory.gpus if entry.selector.matches(gpu)]
        self.missing(entry)
        if entry.later:
            what = "vGPUs" if entry.later == "vgpu" else "passthrough"
            self.block("NOT_YET", entry, f"this version of Aliquot does not manage {what} yet")
        capable = [gpu for gpu in gpus if gpu.mig.capable]
        able = self.incapable(entry, [gpu for gpu in gpus if not gpu.mig.capable])
        if not entry.later:
            self.claim(entry, capable)
        if not gpus:
            self.idle.append(entry)
        return bool(capable) or able

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
            if not absent:
                continue
            sentence = f"there is no GPU with the {what} {', '.join(absent)} here"
            if self.config.compat:
                self.notes.append(f"{place(self.config.source, entry)}: {sentence}")
            else:
                self.block("NO_SUCH_GPU", entry, f"{sentence} (this node has {len(here)})", next_step="aliquot show")

    def incapable(self, entry: Entry, gpus: Sequence[Gpu]) -> bool:
        """GPUs that cannot be partitioned: noted under ``all``, blocking where they were named. True if leaving them
        alone is what the entry wants.
        """
        if not gpus:
            return False
        if entry.later:
            return True
        lost = any(gpu.lost for gpu in gpus)
        sentence = f"{gpus_text(gpus)} {'fell off the bus' if lost else 'cannot be partitioned'}"
        if entry.mig and not entry.selector.everything and not self.config.compat:
            next_step = "aliquot show"
            self.block(
                "GPU_LOST" if lost else "NOT_CAPABLE",
                entry,
                f"{sentence}, but MIG is wanted of it",
                gpus[0].pci,
                next_step,
            )
        else:
            self.left_alone = True
            self.notes.append(f"{sentence} and {'is' if len(gpus) == 1 else 'are'} left alone")
        return not entry.mig

    def claim(self, entry: Entry, gpus: Sequence[Gpu]) -> None:
        by_family: dict[str, list[Gpu]] = {}
        for gpu in gpus:
            by_family.setdefault(gpu.family or "", []).append(gpu)
        if not gpus:
            self.check_names(entry)
        for members in by_family.values():
            wanted = self.wanted(entry, members)
            for gpu in members:
                self.claims[gpu.pci].append((entry, wanted))

    def wanted(self, entry: Entry, gpus: Sequence[Gpu]) -> Wanted | None:
        """What an entry wants of some GPUs of one family; None if that cannot be, which is noted."""
        if not entry.mig or not entry.wishes:
            return entry.mig, ()
        try:
            family = self.inventory.family(gpus[0])
        except KeyError:
            self.block("NO_TABLE", entry, f"no geometry table is known for {gpus_text(gpus)}", gpus[0].pci)
            return None
        instances, problems = resolve(family, entry.wishes)
        for problem in problems:
            self.problem(problem, family, gpus)
        return None if problems else (True, instances)

    def problem(self, problem: Problem, family: Family, gpus: Sequence[Gpu]) -> None:
        wish = problem.wish
        next_step = f"aliquot profiles {gpus[0].index}"
        if problem.rule != "UNKNOWN_PROFILE":
            self.block(problem.rule, wish, f"{problem.sentence} on {gpus_text(gpus)}", gpus[0].pci, next_step)
            return
        hint = self.alternatives(wish.text, family)
        others = owners(self.inventory, wish)
        if not others and not self.config.compat:
            self.wrong.next_step = next_step
            self.wrong.add(wish, f"no GPU has a profile {wish.text}{hint}")
            return
        where = f"{', '.join(others)} {'has' if len(others) == 1 else 'have'} it" if others else "no GPU has it"
        detail = problem.sentence or where
        self.block(
            problem.rule,
            wish,
            f"{gpus_text(gpus)} {'has' if len(gpus) == 1 else 'have'} no profile {wish.text}: {detail}{hint}",
            gpus[0].pci,
            next_step,
        )

    def alternatives(self, text: str, family: Family) -> str:
        if text.startswith("id:"):
            return f" (ids here: {', '.join(f'{p.id} = {p.name}' for p in family.profiles)})"
        return close(text, profile_names(family)) or f" (here: {', '.join(p.name for p in family.profiles)})"

    def check_names(self, entry: Entry) -> None:
        """An entry for GPUs that are not here must still name profiles that exist, unless it is for GPUs that the
        catalog does not know either.
        """
        if self.config.compat or not entry.wishes:
            return
        if entry.selector.filters is not None:
            familiar = {packed(device.pci_device) for device in catalog.devices()}
            if not any(primary in familiar for primary, _ in entry.selector.filters):
                return
        for wish in entry.wishes:
            for each in (wish, *(wish.compute or ())):
                if not known(self.inventory, each):
                    names = (n for name in catalog.family_names() for n in profile_names(catalog.family(name)))
                    self.wrong.next_step = "aliquot profiles"
                    self.wrong.add(each, f"no GPU has a profile {each.text}{close(each.text, dict.fromkeys(names))}")

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
                    self.block("OVERLAP", last, f"{sentence} {gpu_text(gpu)}", gpu.pci)
                    return None
        mig, instances = wanted
        return GpuWish(gpu.pci, mig, instances, place(self.config.source, last))

    def nothing_matches(self) -> None:
        here = ", ".join(dict.fromkeys(gpu.product for gpu in self.inventory.gpus)) or "no GPU"
        reason = "can be partitioned" if self.left_alone else "is meant by any of its entries"
        what = f"{self.config.source}: {self.name!r}" if self.name else "the wish"
        rule = "NOT_CAPABLE" if self.left_alone else "NOTHING_MATCHES"
        sentence = f"{what} cannot be met here: no GPU of this node {reason} (this node has {here})"
        self.faults.append(Fault(rule, sentence, next_step="aliquot show"))

    def block(self, rule: str, at: Marked, sentence: str, pci: str = "", next_step: str | None = None) -> None:
        self.faults.append(Fault(rule, f"{place(self.config.source, at)}: {sentence}", pci, next_step))


def same(one: Wanted, other: Wanted | None) -> bool:
    """Whether two wishes for one GPU are the same, whatever their order."""
    return other is not None and one[0] == other[0] and Counter(one[1]) == Counter(other[1])
