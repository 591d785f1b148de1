"""Conversion between form fields and change requests.

The field ``ask`` names the kind of request, and the other fields have the names of its attributes.
A list has one field per entry, and a count is named ``count.PROFILE``. All errors are reported at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from aliquot.core.model.ids import pci_address
from aliquot.core.model.plan import HELD_POLICIES
from aliquot.core.model.profile import ProfileName
from aliquot.dashboard.change_requests import (
    AnyChangeRequest,
    AttachDevices,
    DetachDevices,
    FitInstance,
    PartitionGpu,
    Repair,
    SetLayout,
    SetVgpus,
    SwitchFunctions,
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
    """The fields of a form, and the errors found while reading them."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self.errors: list[str] = []

    def text(self, name: str, what: str, *, empty: bool = False) -> str:
        given = [value.strip() for value in self._form.get(name, ())]
        if len(set(given)) > 1:
            self.errors.append(f"{what} has {len(given)} different values")
        value = given[0] if given else ""
        if len(value) > MOST_TEXT:
            self.errors.append(f"{what} is longer than {MOST_TEXT} characters")
        elif not value and not empty:
            self.errors.append(f"{what} is missing")
        elif any(not c.isprintable() for c in value):
            self.errors.append(f"{what} has unprintable characters")
        return value

    def gpu(self) -> str:
        value = self.text("gpu", "the GPU")
        if not value:
            return value
        try:
            return pci_address(value)
        except ValueError as error:
            self.errors.append(f"the GPU: {error}")
            return value

    def entries(self, name: str, what: str) -> tuple[str, ...]:
        """Return the entries of a list, without duplicates."""
        found = tuple(dict.fromkeys(value.strip() for value in self._form.get(name, ()) if value.strip()))
        if not found:
            self.errors.append(f"no {what} is selected: select at least one")
        if len(found) > MOST_ENTRIES:
            self.errors.append(f"{len(found)} entries are selected: select at most {MOST_ENTRIES}")
        return found[:MOST_ENTRIES]

    def flag(self, name: str, what: str) -> bool:
        value = self.text(name, what, empty=True).lower()
        if value not in _ON:
            self.errors.append(f"invalid value {value[:20]!r} for {what}: use on or off")
        return _ON.get(value, False)

    def counts(self) -> dict[str, int]:
        """Return the number of instances by profile, without zeros."""
        found: dict[str, int] = {}
        for field in self._form:
            if not field.startswith(COUNT):
                continue
            name = field.removeprefix(COUNT)
            value = self.text(field, f"the number of {name[:40]}", empty=True)
            try:
                ProfileName.parse(name)
            except ValueError as error:
                self.errors.append(str(error)[:200])
                continue
            count = decimal(value or "0")
            if count is None or count > MOST_COUNT:
                self.errors.append(f"invalid number of {name} {value[:20]!r}: use 0 to {MOST_COUNT}")
            elif count:
                found[name] = count
        return found

    def policy(self) -> tuple[str, float]:
        policy = self.text("policy", "the policy for held instances", empty=True) or "refuse"
        if policy not in HELD_POLICIES:
            self.errors.append(f"invalid policy {policy[:20]!r} for held instances: use refuse, wait or force")
        text = self.text("timeout_s", "the time to wait", empty=True) or "60"
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= LONGEST_WAIT_S:
            self.errors.append(f"invalid time to wait {text[:20]!r}: use 0 to {LONGEST_WAIT_S:g} seconds")
            seconds = 60.0
        return policy, seconds


def parse_change_request(form: Form) -> AnyChangeRequest:
    """Return the change request of a form. Raises ConfigError with all errors in ``details``."""
    fields = _Fields(form)
    kind = fields.text("ask", "the kind of request")
    read = _READ.get(kind)
    if read is None:
        if kind:
            fields.errors.append(f"unknown kind of request {kind[:40]!r}")
        raise _error(fields.errors)
    request = read(fields)
    policy, seconds = fields.policy()
    if fields.errors:
        raise _error(fields.errors)
    return msgspec.structs.replace(request, policy=policy, timeout_s=seconds)


def _error(errors: list[str]) -> ConfigError:
    brief = errors[0] if len(errors) == 1 else f"the request has {len(errors)} errors"
    return ConfigError(brief, details=tuple(errors) if len(errors) > 1 else ())


def _partition_gpu(fields: _Fields) -> PartitionGpu:
    node, gpu = fields.text("node", "the node"), fields.gpu()
    if fields.text("how", "the form of the geometry", empty=True) != "counts":
        return PartitionGpu(node=node, gpu=gpu, mig=fields.text("mig", "the geometry"))
    counts = fields.counts()
    mig = ",".join(name if n == 1 else f"{name}*{n}" for name, n in counts.items()) or "empty"
    return PartitionGpu(node=node, gpu=gpu, mig=mig)


def _fit_instance(fields: _Fields) -> FitInstance:
    return FitInstance(
        node=fields.text("node", "the node"), gpu=fields.gpu(), profile=fields.text("profile", "the profile")
    )


def _functions(fields: _Fields) -> SwitchFunctions:
    return SwitchFunctions(gpus=fields.entries("gpus", "GPU"), on=fields.flag("on", "virtual functions"))


def _vgpus(fields: _Fields) -> SetVgpus:
    places = fields.entries("places", "place for a vGPU")
    if fields.flag("clear", "destroying vGPUs"):
        return SetVgpus(places=places, type="")
    return SetVgpus(places=places, type=fields.text("type", "the vGPU type"))


def _layout(fields: _Fields) -> SetLayout:
    node, gpu, enabled = fields.text("node", "the node"), fields.gpu(), fields.flag("enabled", "the MIG configuration")
    return SetLayout(node=node, gpu=gpu, counts=fields.counts(), enabled=enabled)


def _config(fields: _Fields) -> UseConfig:
    return UseConfig(nodes=fields.entries("nodes", "node"), config=fields.text("config", "the named config"))


def _repair(fields: _Fields) -> Repair:
    return Repair(node=fields.text("node", "the node"))


def _vm_fields(fields: _Fields) -> tuple[str, str, str, tuple[str, ...]]:
    namespace = fields.text("namespace", "the namespace", empty=True)
    vm, node = fields.text("machine", "the VM"), fields.text("node", "the node", empty=True)
    return namespace, vm, node, fields.entries("devices", "device")


def _attach(fields: _Fields) -> AttachDevices:
    namespace, vm, node, devices = _vm_fields(fields)
    return AttachDevices(namespace=namespace, vm=vm, node=node, devices=devices)


def _detach(fields: _Fields) -> DetachDevices:
    namespace, vm, node, devices = _vm_fields(fields)
    return DetachDevices(namespace=namespace, vm=vm, node=node, devices=devices)


_READ: dict[str, Callable[[_Fields], AnyChangeRequest]] = {
    "cut": _partition_gpu,
    "make-room": _fit_instance,
    "functions": _functions,
    "vgpus": _vgpus,
    "layout": _layout,
    "config": _config,
    "repair": _repair,
    "attach": _attach,
    "detach": _detach,
}


def form_of(request: AnyChangeRequest) -> tuple[tuple[str, str], ...]:
    """Return the form fields of a request, as ``parse_change_request`` reads them."""
    plain = msgspec.to_builtins(request)
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
    return (*out, ("clear", "on")) if isinstance(request, SetVgpus) and not request.type else tuple(out)
