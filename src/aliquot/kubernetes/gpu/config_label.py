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
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, ConfigError
from aliquot.kubernetes.gpu import names

DATA_KEY = "config.yaml"


class ConfigFailure(msgspec.Struct, frozen=True):
    """Why a wish is not met. ``reason`` is a word for programs, ``message`` one sentence for people."""

    reason: str
    message: str
    details: tuple[str, ...] = ()
    next_step: str = ""


class NamedConfigSource(msgspec.Struct, frozen=True):
    """A place where named configs are written. ``text`` None says that it is not there; ``missing`` why."""

    name: str
    text: str | None
    missing: str = ""


class DesiredConfig(msgspec.Struct, frozen=True):
    """What a label value means here. Either ``desired`` or ``failure``. ``digest`` tells one meaning from another: an
    edited config has another digest under the same name.
    """

    label: str
    desired: Desired | None = None
    source: str = ""
    digest: str = ""
    failure: ConfigFailure | None = None


def failure_of(error: AliquotError, reason: str) -> ConfigFailure:
    """An error as the reason of a failed state. The first fault of a file belongs into the sentence: it is all that an
    event shows.
    """
    brief = f"{error.brief}: {error.details[0]}" if isinstance(error, ConfigError) and error.details else error.brief
    return ConfigFailure(reason, brief, error.details, error.next_step or "")


def internal_failure(error: Exception) -> ConfigFailure:
    """A defect of ours as the reason of a failed state."""
    return ConfigFailure("InternalFault", f"internal fault: {type(error).__name__}: {error}"[:300])


def config_map_source(name: str, data: dict[str, str] | None) -> NamedConfigSource:
    """A ConfigMap as a source. ``data`` None where there is no such ConfigMap."""
    where = f"ConfigMap {name}"
    if data is None:
        return NamedConfigSource(where, None, f"{where} does not exist")
    if DATA_KEY not in data:
        keys = ", ".join(sorted(data)) or "nothing"
        return NamedConfigSource(where, None, f"{where} has no key {DATA_KEY} (it has {keys})")
    return NamedConfigSource(where, data[DATA_KEY])


def resolve(
    label: str, sources: Sequence[NamedConfigSource], inventory: Inventory, reserved: Collection[str] = ()
) -> DesiredConfig:
    """The wish behind a label value. The first source that has a config of that name decides; ``reserved`` are PCI
    addresses that are out of bounds. What is wrong is in the answer, never raised.
    """
    if not label:
        return DesiredConfig(
            label,
            failure=ConfigFailure("EmptyLabel", f"the label {names.CONFIG_LABEL} is empty", (), _list_command(sources)),
        )
    known: dict[str, ConfigFile] = {}
    failures: list[ConfigFailure] = []
    for source in sources:
        if source.text is None:
            failures.append(ConfigFailure("ConfigMissing", source.missing, (), _create_command(source)))
            continue
        try:
            config = _load(source.text, source.name, _profiles(inventory))
        except AliquotError as error:
            failures.append(failure_of(error, "InvalidConfig"))
            continue
        if label in config.names:
            return _resolve_in(label, source, config, inventory, reserved)
        known |= {name: config for name in config.names if name not in known}
    if known:
        fitting = [name for name, config in known.items() if _applies(config, name, inventory)]
        details = (f"there are: {', '.join(fitting) or 'none for these GPUs'}", *(f.message for f in failures))
        message = f"no named config {label!r}{did_you_mean(label, fitting)}"
        return DesiredConfig(label, failure=ConfigFailure("UnknownConfig", message, details, _list_command(sources)))
    first = failures[0] if failures else ConfigFailure("ConfigMissing", "there is no source of named configs")
    return DesiredConfig(label, failure=first)


def _resolve_in(
    label: str, source: NamedConfigSource, config: ConfigFile, inventory: Inventory, reserved: Collection[str]
) -> DesiredConfig:
    try:
        desired = select(config, label, inventory)
    except AliquotError as error:
        return DesiredConfig(label, source=source.name, failure=failure_of(error, "InvalidConfig"))
    selected = tuple(gpu for gpu in desired.gpus if gpu.pci not in reserved)
    left_alone = [gpu.pci for gpu in desired.gpus if gpu.pci in reserved]
    if left_alone:
        note = f"GPU {', '.join(left_alone)} is left alone: an enabled SRIOVGPUDevice has it"
        desired = msgspec.structs.replace(desired, gpus=selected, notes=(*desired.notes, note))
        if not selected:
            return DesiredConfig(label, source=source.name, failure=ConfigFailure("Reserved", note))
    text = msgspec.json.encode([label, desired.gpus, desired.failures])
    return DesiredConfig(label, desired, source.name, hashlib.sha256(text).hexdigest()[:12])


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


def _applies(config: ConfigFile, name: str, inventory: Inventory) -> bool:
    """Whether a named config means any GPU of the node, and these can have it."""
    try:
        desired = select(config, name, inventory)
    except AliquotError:
        return False
    return bool(desired.gpus) and not desired.failures


def _list_command(sources: Sequence[NamedConfigSource]) -> str:
    maps = [
        s.name.removeprefix("ConfigMap ") for s in sources if s.text is not None and s.name.startswith("ConfigMap ")
    ]
    return f"kubectl get configmap {_flags(maps[0])} -o yaml" if maps else ""


def _create_command(source: NamedConfigSource) -> str:
    if not source.name.startswith("ConfigMap "):
        return ""
    where = _flags(source.name.removeprefix("ConfigMap "))
    return f"kubectl create configmap {where} --from-file={DATA_KEY}"


def _flags(name: str) -> str:
    namespace, slash, rest = name.partition("/")
    return f"-n {namespace} {rest}" if slash else name
