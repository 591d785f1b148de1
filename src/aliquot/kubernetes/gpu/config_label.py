"""From a node's label to what its GPUs should be: which named config is meant, where it is written, what is wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from aliquot.core.config.file import ConfigFile
from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.config.select.profile_lookup import profile_names
from aliquot.core.config.text.node_reader import close
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, ConfigError
from aliquot.kubernetes.gpu import names

DATA_KEY = "config.yaml"


class Trouble(msgspec.Struct, frozen=True):
    """Why a wish is not met. ``reason`` is a word for programs, ``message`` one sentence for people."""

    reason: str
    message: str
    details: tuple[str, ...] = ()
    next_step: str = ""


class Source(msgspec.Struct, frozen=True):
    """A place where named configs are written. ``text`` None says that it is not there; ``missing`` why."""

    name: str
    text: str | None
    missing: str = ""


class Wish(msgspec.Struct, frozen=True):
    """What a label value means here. Either ``desired`` or ``trouble``. ``digest`` tells one meaning from another: an
    edited config has another digest under the same name.
    """

    label: str
    desired: Desired | None = None
    source: str = ""
    digest: str = ""
    trouble: Trouble | None = None


def trouble_of(error: AliquotError, reason: str) -> Trouble:
    """An error as the reason of a failed state. The first fault of a file belongs into the sentence: it is all that an
    event shows.
    """
    brief = f"{error.brief}: {error.details[0]}" if isinstance(error, ConfigError) and error.details else error.brief
    return Trouble(reason, brief, error.details, error.next_step or "")


def internal(error: Exception) -> Trouble:
    """A defect of ours as the reason of a failed state."""
    return Trouble("InternalFault", f"internal fault: {type(error).__name__}: {error}"[:300])


def data_of(name: str, data: dict[str, str] | None) -> Source:
    """A ConfigMap as a source. ``data`` None where there is no such ConfigMap."""
    where = f"ConfigMap {name}"
    if data is None:
        return Source(where, None, f"{where} does not exist")
    if DATA_KEY not in data:
        keys = ", ".join(sorted(data)) or "nothing"
        return Source(where, None, f"{where} has no key {DATA_KEY} (it has {keys})")
    return Source(where, data[DATA_KEY])


def read(label: str, sources: Sequence[Source], inventory: Inventory, reserved: Collection[str] = ()) -> Wish:
    """The wish behind a label value. The first source that has a config of that name decides; ``reserved`` are PCI
    addresses that are out of bounds. What is wrong is in the answer, never raised.
    """
    if not label:
        return Wish(
            label, trouble=Trouble("EmptyLabel", f"the label {names.CONFIG_LABEL} is empty", (), _list(sources))
        )
    known: dict[str, ConfigFile] = {}
    faults: list[Trouble] = []
    for source in sources:
        if source.text is None:
            faults.append(Trouble("ConfigMissing", source.missing, (), _fix(source)))
            continue
        try:
            config = _load(source.text, source.name, _profiles(inventory))
        except AliquotError as error:
            faults.append(trouble_of(error, "InvalidConfig"))
            continue
        if label in config.names:
            return _resolved(label, source, config, inventory, reserved)
        known |= {name: config for name in config.names if name not in known}
    if known:
        fitting = [name for name, config in known.items() if _is_for(config, name, inventory)]
        details = (f"there are: {', '.join(fitting) or 'none for these GPUs'}", *(f.message for f in faults))
        message = f"no named config {label!r}{close(label, fitting)}"
        return Wish(label, trouble=Trouble("UnknownConfig", message, details, _list(sources)))
    first = faults[0] if faults else Trouble("ConfigMissing", "there is no source of named configs")
    return Wish(label, trouble=first)


def _resolved(label: str, source: Source, config: ConfigFile, inventory: Inventory, reserved: Collection[str]) -> Wish:
    try:
        desired = select(config, label, inventory)
    except AliquotError as error:
        return Wish(label, source=source.name, trouble=trouble_of(error, "InvalidConfig"))
    kept = tuple(gpu for gpu in desired.gpus if gpu.pci not in reserved)
    away = [gpu.pci for gpu in desired.gpus if gpu.pci in reserved]
    if away:
        note = f"GPU {', '.join(away)} is left alone: an enabled SRIOVGPUDevice has it"
        desired = msgspec.structs.replace(desired, gpus=kept, notes=(*desired.notes, note))
        if not kept:
            return Wish(label, source=source.name, trouble=Trouble("Reserved", note))
    text = msgspec.json.encode([label, desired.gpus, desired.faults])
    return Wish(label, desired, source.name, hashlib.sha256(text).hexdigest()[:12])


@lru_cache(maxsize=8)
def _load(text: str, source: str, profiles: tuple[str, ...]) -> ConfigFile:
    return load(text, source, profiles=profiles)


def _profiles(inventory: Inventory) -> tuple[str, ...]:
    """What the node's GPUs can be divided into; empty where no table says."""
    found: dict[str, None] = {}
    for gpu in inventory.gpus:
        with suppress(KeyError):
            found |= dict.fromkeys(profile_names(inventory.family(gpu)))
    return tuple(found)


def _is_for(config: ConfigFile, name: str, inventory: Inventory) -> bool:
    """Whether a named config means any GPU of the node, and these can have it."""
    try:
        desired = select(config, name, inventory)
    except AliquotError:
        return False
    return bool(desired.gpus) and not desired.faults


def _list(sources: Sequence[Source]) -> str:
    maps = [
        s.name.removeprefix("ConfigMap ") for s in sources if s.text is not None and s.name.startswith("ConfigMap ")
    ]
    return f"kubectl get configmap {_flags(maps[0])} -o yaml" if maps else ""


def _fix(source: Source) -> str:
    if not source.name.startswith("ConfigMap "):
        return ""
    where = _flags(source.name.removeprefix("ConfigMap "))
    return f"kubectl create configmap {where} --from-file={DATA_KEY}"


def _flags(name: str) -> str:
    namespace, slash, rest = name.partition("/")
    return f"-n {namespace} {rest}" if slash else name
