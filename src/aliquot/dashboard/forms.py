"""What a form asks: its fields as an Ask, with all faults at once, and back again.

The field ``ask`` says which kind; the others are named like the ask's. Lists come as one field per entry, counts as
``count.PROFILE``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from aliquot.core.model.ids import pci_address
from aliquot.core.model.profile import ProfileName
from aliquot.dashboard.change_requests import (
    POLICIES,
    AnyAsk,
    Attach,
    Cut,
    Detach,
    MakeRoom,
    Repair,
    SetFunctions,
    SetLayout,
    SetVgpus,
    UseConfig,
)
from aliquot.errors import ConfigError
from aliquot.foundation.decimals import decimal

Form = Mapping[str, Sequence[str]]
COUNT = "count."
MOST_COUNT = 128
MOST_TEXT = 2000
MOST_ENTRIES = 4096
LONGEST_WAIT_S = 24 * 3600.0
_ON = {
    "on": True,
    "true": True,
    "1": True,
    "yes": True,
    "off": False,
    "false": False,
    "0": False,
    "no": False,
    "": False,
}


class _Fields:
    """A form being read; ``faults`` are sentences about what is wrong with it."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.faults: list[str] = []

    def text(self, name: str, what: str, *, empty: bool = False) -> str:
        given = [value.strip() for value in self._form.get(name, ())]
        if len(set(given)) > 1:
            self.faults.append(f"{what} is given {len(given)} times, and differently")
        value = given[0] if given else ""
        if len(value) > MOST_TEXT:
            self.faults.append(f"{what} is longer than {MOST_TEXT} characters")
        elif not value and not empty:
            self.faults.append(f"{what} is missing")
        elif any(not c.isprintable() for c in value):
            self.faults.append(f"{what} has characters that cannot be printed")
        return value

    def gpu(self) -> str:
        value = self.text("gpu", "the GPU")
        if not value:
            return value
        try:
            return pci_address(value)
        except ValueError as error:
            self.faults.append(f"the GPU: {error}")
            return value

    def entries(self, name: str, what: str) -> tuple[str, ...]:
        """The entries of a list, each once."""
        found = tuple(dict.fromkeys(value.strip() for value in self._form.get(name, ()) if value.strip()))
        if not found:
            self.faults.append(f"no {what} is chosen: tick at least one")
        if len(found) > MOST_ENTRIES:
            self.faults.append(f"{len(found)} entries are more than {MOST_ENTRIES}")
        return found[:MOST_ENTRIES]

    def flag(self, name: str, what: str) -> bool:
        value = self.text(name, what, empty=True).lower()
        if value not in _ON:
            self.faults.append(f"{what} is on or off, not {value[:20]!r}")
        return _ON.get(value, False)

    def counts(self) -> dict[str, int]:
        """How many of each profile; those of which none is wanted are left out."""
        found: dict[str, int] = {}
        for field in self._form:
            if not field.startswith(COUNT):
                continue
            name = field.removeprefix(COUNT)
            value = self.text(field, f"the number of {name[:40]}", empty=True)
            try:
                ProfileName.parse(name)
            except ValueError as error:
                self.faults.append(str(error)[:200])
                continue
            count = decimal(value or "0")
            if count is None or count > MOST_COUNT:
                self.faults.append(f"{value[:20]!r} is no number of {name} (0 to {MOST_COUNT})")
            elif count:
                found[name] = count
        return found

    def policy(self) -> tuple[str, float]:
        policy = self.text("policy", "what to do with what is in use", empty=True) or "refuse"
        if policy not in POLICIES:
            self.faults.append(f"{policy[:20]!r} is no way to treat what is in use: refuse, wait or force")
        text = self.text("timeout_s", "how long to wait", empty=True) or "60"
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= LONGEST_WAIT_S:
            self.faults.append(f"{text[:20]!r} is no number of seconds to wait (0 to {LONGEST_WAIT_S:g})")
            seconds = 60.0
        return policy, seconds


def ask_from(form: Form) -> AnyAsk:
    """Raises ConfigError with every fault in ``details``."""
    fields = _Fields(form)
    kind = fields.text("ask", "what is asked")
    read = _READ.get(kind)
    if read is None:
        if kind:
            fields.faults.append(f"nobody can ask for {kind[:40]!r} here")
        raise _error(fields.faults)
    ask = read(fields)
    policy, seconds = fields.policy()
    if fields.faults:
        raise _error(fields.faults)
    return msgspec.structs.replace(ask, policy=policy, timeout_s=seconds)


def _error(faults: list[str]) -> ConfigError:
    brief = faults[0] if len(faults) == 1 else f"{len(faults)} things are wrong with what was asked"
    return ConfigError(brief, details=tuple(faults) if len(faults) > 1 else ())


def _cut(f: _Fields) -> Cut:
    node, gpu = f.text("node", "the node"), f.gpu()
    if f.text("how", "how the cut is given", empty=True) != "counts":
        return Cut(node=node, gpu=gpu, mig=f.text("mig", "the geometry"))
    counts = f.counts()
    mig = ",".join(name if n == 1 else f"{name}*{n}" for name, n in counts.items()) or "empty"
    return Cut(node=node, gpu=gpu, mig=mig)


def _make_room(f: _Fields) -> MakeRoom:
    return MakeRoom(node=f.text("node", "the node"), gpu=f.gpu(), profile=f.text("profile", "the profile"))


def _functions(f: _Fields) -> SetFunctions:
    return SetFunctions(gpus=f.entries("gpus", "GPU"), on=f.flag("on", "virtual functions"))


def _vgpus(f: _Fields) -> SetVgpus:
    places = f.entries("places", "place for a vGPU")
    if f.flag("clear", "taking vGPUs away"):
        return SetVgpus(places=places, type="")
    return SetVgpus(places=places, type=f.text("type", "the vGPU type"))


def _layout(f: _Fields) -> SetLayout:
    node, gpu, enabled = f.text("node", "the node"), f.gpu(), f.flag("enabled", "the MIG configuration")
    return SetLayout(node=node, gpu=gpu, counts=f.counts(), enabled=enabled)


def _config(f: _Fields) -> UseConfig:
    return UseConfig(nodes=f.entries("nodes", "node"), config=f.text("config", "the named config"))


def _repair(f: _Fields) -> Repair:
    return Repair(node=f.text("node", "the node"))


def _machine(f: _Fields) -> tuple[str, str, str, tuple[str, ...]]:
    namespace = f.text("namespace", "the namespace", empty=True)
    machine, node = f.text("machine", "the machine"), f.text("node", "the node", empty=True)
    return namespace, machine, node, f.entries("devices", "device")


def _attach(f: _Fields) -> Attach:
    namespace, machine, node, devices = _machine(f)
    return Attach(namespace=namespace, machine=machine, node=node, devices=devices)


def _detach(f: _Fields) -> Detach:
    namespace, machine, node, devices = _machine(f)
    return Detach(namespace=namespace, machine=machine, node=node, devices=devices)


_READ: dict[str, Callable[[_Fields], AnyAsk]] = {
    "cut": _cut,
    "make-room": _make_room,
    "functions": _functions,
    "vgpus": _vgpus,
    "layout": _layout,
    "config": _config,
    "repair": _repair,
    "attach": _attach,
    "detach": _detach,
}


def form_of(ask: AnyAsk) -> tuple[tuple[str, str], ...]:
    """The fields that ask the same again: what ``ask_from`` reads."""
    plain = msgspec.to_builtins(ask)
    out: list[tuple[str, str]] = []
    for name, value in plain.items():
        if isinstance(value, dict):
            out += [(f"{COUNT}{profile}", str(n)) for profile, n in value.items()]
        elif isinstance(value, bool):
            out.append((name, "on" if value else "off"))
        elif isinstance(value, list | tuple):
            out += [(name, str(entry)) for entry in value]
        else:
            out.append((name, f"{value:g}" if isinstance(value, float) else str(value)))
    return (*out, ("clear", "on")) if isinstance(ask, SetVgpus) and not ask.type else tuple(out)
