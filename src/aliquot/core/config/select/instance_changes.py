"""Requests as changes: ``--add 2g.20gb --remove 1g.10gb*2``, and ``--mig 1g.10gb*7 --total``. Each count is for all
selected GPUs together. They are resolved against the inventory into the desired state of each GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from shlex import join

import msgspec

from aliquot.core.config.file import MIG, NATIVE, ConfigEntry, ConfigFile
from aliquot.core.config.select.command_line import instance_requests, only_gpu, selectors
from aliquot.core.config.select.gpu_text import gpus_text
from aliquot.core.config.select.instances import InstanceProblem, resolve
from aliquot.core.config.select.mig_entries import report_problem
from aliquot.core.config.select.selection import ConfigSelection
from aliquot.core.config.select.selection_report import SelectionReport
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import Desired, DesiredInstance, ResolutionFailure, RuleCode
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.blockers import find_infeasible
from aliquot.core.planner.change_distribution import ChangeCandidate, distribute_change, picked
from aliquot.core.planner.change_space import smallest_removal
from aliquot.core.planner.geometry_change import contents_after, count_removable
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.share_search import Share
from aliquot.errors import ConfigError

ADD, REMOVE = "add", "remove"


def add_and_remove(gpus: Sequence[str], add: Sequence[str], remove: Sequence[str], inventory: Inventory) -> Desired:
    """Return the desired state with ``add`` more and ``remove`` fewer instances; GPUs that do not change are omitted.

    ``gpus`` is as for ``adhoc``; if empty, it is every GPU in MIG mode, or the only GPU that can be partitioned.
    Raises ConfigError with all errors.
    """
    change = _InstanceChange(gpus, {ADD: add, REMOVE: remove}, inventory)
    both = [r.text for r in change.kinds[ADD] if any(_same(r, other) for other in change.kinds[REMOVE])]
    if both:
        raise ConfigError(f"{', '.join(both)} is in both --add and --remove: give only the difference")
    for request in change.kinds[REMOVE]:
        if request.start is not None and request.name and request.name.compute != request.name.slices:
            text = f"--{REMOVE} {request.text}@{request.start}: a placement names a GPU instance"
            raise ConfigError(f"{text}, so write {request.name.instance}@{request.start}, or {request.text} alone")
    return change.desired()


def total(gpus: Sequence[str], mig: Sequence[str], inventory: Inventory) -> Desired:
    """Return the desired state with exactly ``mig`` on all the GPUs together. Raises ConfigError with all errors."""
    words = [*_options({MIG: mig}), "--total"]
    return _InstanceChange(gpus or [only_gpu(inventory, MIG, words)], {MIG: mig}, inventory).desired()


class _InstanceChange:
    """A request against one node. ``kinds`` are the distinct requested instances, by option."""

    def __init__(self, gpus: Sequence[str], texts: dict[str, Sequence[str]], inventory: Inventory) -> None:
        self.typed_gpus = gpus
        self.options = _options(texts)
        self.inventory = inventory
        self.kinds = {option: _kinds(option, each, inventory, gpus) for option, each in texts.items()}
        if not any(self.kinds.values()):
            raise ConfigError("no change is requested: name a profile, for example --add 1g.10gb")
        self.option = next(option for option, kinds in self.kinds.items() if kinds)
        self.replacing = MIG in texts
        self.added = self.kinds.get(ADD, self.kinds.get(MIG, ()))
        self.removed = self.kinds.get(REMOVE, ())

    def desired(self) -> Desired:
        selected = self._select()
        if selected.failures:
            return msgspec.structs.replace(selected, gpus=())
        candidates, failures = self._candidates([self.inventory.gpu(each.pci) for each in selected.gpus])
        failures = failures or tuple(self._missing(candidates))
        if failures:
            return Desired((), notes=selected.notes, failures=failures)
        found = distribute_change(candidates, *self._counts(), replacing=self.replacing)
        if found is None:
            return Desired((), notes=selected.notes, failures=(self._no_room(candidates),))
        return Desired(found, self._name(), selected.notes)

    def _counts(self) -> tuple[Share, Share]:
        return tuple(r.count for r in self.added), tuple(r.count for r in self.removed)

    def _name(self) -> str:
        """Return the name of the desired state in reasons and in the history."""
        more = f" plus {_text(self.added)}" if self.added else ""
        fewer = f" minus {_text(self.removed)}" if self.removed else ""
        return "" if self.replacing else f"current state{more}{fewer}"

    def _select(self) -> Desired:
        """Return the selected GPUs, as a desired state without instances."""
        targets = list(self.typed_gpus) or _gpus_in_mig_mode(self.inventory, self.options)
        entries = [
            ConfigEntry(selector, True, (), 0, 0) for text in targets for selector in selectors(text, self.inventory)
        ]
        config = ConfigFile(f"--{self.option}", NATIVE, {"": tuple(entries)})
        return ConfigSelection(config, "", self.inventory).select(entries)

    def _candidates(self, gpus: Sequence[Gpu]) -> tuple[list[ChangeCandidate], tuple[ResolutionFailure, ...]]:
        """Return the GPUs with the meaning of the request on each. Raises ConfigError for a profile that no GPU has."""
        families: dict[str, Family] = {}
        for gpu in gpus:
            try:
                families[gpu.pci] = self.inventory.family(gpu)
            except KeyError:
                text = f"no geometry table is known for {gpus_text([gpu])}"
                return [], (ResolutionFailure("NO_TABLE", text, gpu.pci),)
        meanings: dict[str, list[tuple[DesiredInstance | None, ...]]] = {gpu.pci: [] for gpu in gpus}
        failures: list[ResolutionFailure] = []
        for option, kinds in ((self.option if self.replacing else ADD, self.added), (REMOVE, self.removed)):
            report = SelectionReport(ConfigFile(f"--{option}", NATIVE, {}), self.inventory)
            columns = [_meanings(report, kind, gpus, families) for kind in kinds]
            report.errors.check()
            failures += report.failures
            for n, gpu in enumerate(gpus):
                meanings[gpu.pci].append(tuple(column[n] for column in columns))
        return [ChangeCandidate(gpu, compiled_table(families[gpu.pci]), *meanings[gpu.pci]) for gpu in gpus], tuple(
            failures
        )

    def _missing(self, candidates: Sequence[ChangeCandidate]) -> Iterable[ResolutionFailure]:
        """Return a failure for each instance that is to be removed and does not exist."""
        gpus = [candidate.gpu for candidate in candidates]
        names = [name for gpu in gpus for name in _device_names(gpu)]
        have = "holds" if len(gpus) == 1 else "hold"
        for n, request in enumerate(self.removed):
            there = sum(count_removable(c.table, c.gpu, kind) for c in candidates if (kind := c.remove[n]) is not None)
            if there >= request.count:
                continue
            place = "" if request.start is None else f" at memory slice {request.start}"
            wanted = f"no {request.text}{place}" if not there else f"{there} x {request.text}, not {request.count},"
            found = geometry_text(geometry(names)) if names else "nothing"
            text = f"{gpus_text(gpus)} {have} {wanted} to remove: there is {found}"
            yield ResolutionFailure("NO_SUCH_INSTANCE", f"--{REMOVE}: {text}", gpus[0].pci, "aliquot show")

    def _no_room(self, candidates: Sequence[ChangeCandidate]) -> ResolutionFailure:
        """Return the failure for instances that do not fit, with the instances to remove so that they fit."""
        gpus, (need, fewer) = [candidate.gpu for candidate in candidates], self._counts()
        text = f"{gpus_text(gpus)} {'has' if len(gpus) == 1 else 'have'} no room for {_text(self.added)}"
        rule: RuleCode = "PLACEMENT"
        if len(candidates) == 1:
            one = candidates[0]
            more, gone = picked(one.add, need) or [], picked(one.remove, fewer) or []
            requests = more if self.replacing else next(contents_after(one.table, one.gpu, more, gone), more)
            found = find_infeasible(one.table, one.gpu, requests)
            if found is not None:
                why = found.sentence(gpus_text(gpus))
                rule, text = found.refusal.rule, why if found.requested else f"{text}: {why}"
        removal = None if self.replacing else smallest_removal(candidates, need)
        if removal is None or not removal.profiles:
            end = "" if removal or self.replacing else ", whatever else is removed"
            return ResolutionFailure(
                rule, f"--{self.option}: {text}{end}", gpus[0].pci, f"aliquot profiles {gpus[0].pci}"
            )
        words = ["aliquot", "plan", *(word for gpu in self.typed_gpus for word in ("--gpu", gpu))]
        removed = removal.profiles | Counter({r.text: r.count for r in self.removed})
        words += ["--add", _text(self.added), "--remove", geometry_text(removed)]
        words += ["--policy", "wait"] if removal.held else []
        return ResolutionFailure(rule, f"--{self.option}: {text}; {removal}", gpus[0].pci, join(words))


def _options(texts: dict[str, Sequence[str]]) -> list[str]:
    """Return the options of the request as typed."""
    return [word for option, each in texts.items() for text in each for word in (f"--{option}", text)]


def _kinds(option: str, texts: Sequence[str], inventory: Inventory, gpus: Sequence[str]) -> tuple[InstanceRequest, ...]:
    """Return the distinct instances that the texts request, each with its total count."""
    merged: dict[object, InstanceRequest] = {}
    for text in texts:
        _, requests = instance_requests(text, inventory, gpus, f"--{option}")
        if not requests:
            raise ConfigError(f"--{option} {text!r}: name profiles with counts, for example 1g.10gb:2")
        for request in requests:
            key = request.name, request.profile_id, request.start
            known = merged.get(key)
            count = request.count + (known.count if known else 0)
            merged[key] = msgspec.structs.replace(known or request, count=count)
    return tuple(merged.values())


def _same(one: InstanceRequest, other: InstanceRequest) -> bool:
    """Report whether two requests are for the same instance, and neither has a placement."""
    return (one.name, one.profile_id, None, None) == (other.name, other.profile_id, one.start, other.start)


def _text(requests: Iterable[InstanceRequest]) -> str:
    """Format requests as an option takes them: ``3g.20gb:2,1g.5gb@4``."""
    return ",".join(f"{r.text}:{r.count}" if r.start is None else f"{r.text}@{r.start}" for r in requests)


def _gpus_in_mig_mode(inventory: Inventory, options: Sequence[str]) -> list[str]:
    """Return the GPUs that are selected if none is named. Raises ConfigError, which repeats the options."""
    capable = [gpu for gpu in inventory.gpus if gpu.mig.capable]
    in_mig_mode = [gpu.pci for gpu in capable if gpu.mig.enabled]
    if len(capable) > 1 and not in_mig_mode:
        raise ConfigError(
            f"none of the {len(capable)} GPUs that can be partitioned is in MIG mode: name one with --gpu",
            details=("after a reboot, 'aliquot restore --boot' restores what was requested last",),
            next_step=join(["aliquot", "plan", "--gpu", str(capable[0].index), *options]),
        )
    return in_mig_mode if len(capable) > 1 else [only_gpu(inventory, MIG, options)]


def _meanings(
    report: SelectionReport, kind: InstanceRequest, gpus: Sequence[Gpu], families: dict[str, Family]
) -> list[DesiredInstance | None]:
    """Resolve one kind on each GPU. Reports a problem if no GPU has it."""
    one = msgspec.structs.replace(kind, count=1)
    found: dict[str, DesiredInstance] = {}
    problems: dict[str, InstanceProblem] = {}
    for family in {family.name: family for family in families.values()}.values():
        instances, wrong = resolve(family, [one])
        if wrong:
            problems[family.name] = wrong[0]
        else:
            found[family.name] = instances[0]
    if not found:
        family = families[gpus[0].pci]
        members = [gpu for gpu in gpus if families[gpu.pci].name == family.name]
        report_problem(report, problems[family.name], family, members)
    return [found.get(families[gpu.pci].name) for gpu in gpus]


def _device_names(gpu: Gpu) -> list[str]:
    """Return the profile names on a GPU: its compute instances, and GPU instances without any."""
    return [name for i in gpu.instances for name in ([c.profile for c in i.compute_instances] or [i.profile])]
