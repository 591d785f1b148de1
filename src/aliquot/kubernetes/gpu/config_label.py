"""Resolution of a node's config label to the desired state of its GPUs, or to the failure that prevents it."""

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
from aliquot.core.config.text.node_reader import catalog_names, did_you_mean
from aliquot.core.model.desired import Desired
from aliquot.core.model.encoding import encode
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError, ConfigError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.change_report import ChangeReport
from aliquot.kubernetes.gpu.node_document import config_map_title
from aliquot.kubernetes.gpu.reasons import FailureReason

DATA_KEY = "config.yaml"


class ConfigFailure(msgspec.Struct, frozen=True):
    """The failure that keeps a request from being applied."""

    reason: FailureReason
    """CamelCase word for programs."""
    message: str
    """One sentence for people."""
    details: tuple[str, ...] = ()
    next_step: str = ""
    change: ChangeReport | None = None


class NamedConfigSource(msgspec.Struct, frozen=True):
    """A source of named configs."""

    name: str
    """What messages call it."""
    text: str | None
    """None if the source does not exist."""
    missing: str = ""
    """Reason why it does not exist."""
    config_map: str = ""
    """The ConfigMap as ``namespace/name``, "" for a file."""
    remedy: str = ""
    """The next command if it does not exist or is invalid."""


class DesiredConfig(msgspec.Struct, frozen=True):
    """The meaning of a label value on a node: either ``desired`` or ``failure`` is set."""

    label: str
    desired: Desired | None = None
    source: str = ""
    digest: str = ""
    """Hash of the desired state: an edited config has another digest under the same name."""
    failure: ConfigFailure | None = None


def failure_of(error: AliquotError, reason: FailureReason) -> ConfigFailure:
    """Convert an error into a failure. The message includes the first error of a file, as an event shows no more."""
    brief = f"{error.brief}: {error.details[0]}" if isinstance(error, ConfigError) and error.details else error.brief
    return ConfigFailure(reason, brief, error.details, error.next_step or "")


def internal_failure(error: Exception) -> ConfigFailure:
    """Convert an unexpected exception, a defect of Aliquot, into a failure."""
    return ConfigFailure("InternalFault", f"internal error: {type(error).__name__}: {error}"[:300])


def config_map_source(name: str, data: dict[str, str] | None) -> NamedConfigSource:
    """Return a ConfigMap as a source. ``data`` is None if the ConfigMap does not exist."""
    where = config_map_title(name)
    if data is None:
        remedy = f"kubectl create configmap {_flags(name)} --from-file={DATA_KEY}"
        return NamedConfigSource(where, None, f"{where} does not exist", name, remedy)
    remedy = f"kubectl edit configmap {_flags(name)}"
    if DATA_KEY not in data:
        keys = ", ".join(sorted(data)) or "nothing"
        return NamedConfigSource(where, None, f"{where} has no key {DATA_KEY} (it has {keys})", name, remedy)
    return NamedConfigSource(where, data[DATA_KEY], config_map=name, remedy=remedy)


def resolve(
    label: str,
    sources: Sequence[NamedConfigSource],
    inventory: Inventory,
    reserved: Collection[str] = (),
    name: str = names.CONFIG_LABEL,
) -> DesiredConfig:
    """Resolve a label value to the desired state, from the first source that has a config of that name.

    ``reserved`` are PCI addresses of GPUs that must not be changed. ``name`` is the label's. Failures are returned,
    not raised.
    """
    if not label:
        return DesiredConfig(
            label,
            failure=ConfigFailure("EmptyLabel", f"the label {name} is empty", (), _list_command(sources)),
        )
    known: dict[str, ConfigFile] = {}
    failures: list[ConfigFailure] = []
    for source in sources:
        if source.text is None:
            failures.append(ConfigFailure("ConfigMissing", source.missing, (), source.remedy))
            continue
        try:
            config = _load(source.text, source.name, _profiles(inventory))
        except AliquotError as error:
            failures.append(_invalid(error, source))
            continue
        if label in config.names:
            return _listing(_resolve_in(label, source, config, inventory, reserved), sources)
        known |= {each: config for each in config.names if each not in known}
    if known:
        fitting = [each for each, config in known.items() if _applies(config, each, inventory)]
        details = (f"available: {', '.join(fitting) or 'none for these GPUs'}", *(f.message for f in failures))
        message = f"no named config {label!r}{did_you_mean(label, fitting)}"
        return DesiredConfig(label, failure=ConfigFailure("UnknownConfig", message, details, _list_command(sources)))
    first = failures[0] if failures else ConfigFailure("ConfigMissing", "no source of named configs is set")
    return DesiredConfig(label, failure=first)


def _resolve_in(
    label: str, source: NamedConfigSource, config: ConfigFile, inventory: Inventory, reserved: Collection[str]
) -> DesiredConfig:
    try:
        desired = select(config, label, inventory)
    except AliquotError as error:
        return DesiredConfig(label, source=source.name, failure=_invalid(error, source))
    selected = tuple(gpu for gpu in desired.gpus if gpu.pci not in reserved)
    left_alone = [gpu.pci for gpu in desired.gpus if gpu.pci in reserved]
    if left_alone:
        note = f"GPU {', '.join(left_alone)} is not changed: an enabled SRIOVGPUDevice uses it"
        desired = msgspec.structs.replace(desired, gpus=selected, notes=(*desired.notes, note))
        if not selected:
            return DesiredConfig(label, source=source.name, failure=ConfigFailure("Reserved", note))
    text = encode([label, desired.gpus, desired.failures])
    return DesiredConfig(label, desired, source.name, hashlib.sha256(text).hexdigest()[:12])


def _listing(found: DesiredConfig, sources: Sequence[NamedConfigSource]) -> DesiredConfig:
    """Let the next command list the named configs if the chosen one is for other GPUs."""
    step = _list_command(sources)
    if found.desired is None or not step:
        return found
    failures = tuple(
        msgspec.structs.replace(f, step=step) if f.rule == "NOTHING_MATCHES" else f for f in found.desired.failures
    )
    return msgspec.structs.replace(found, desired=msgspec.structs.replace(found.desired, failures=failures))


@lru_cache(maxsize=8)
def _load(text: str, source: str, profiles: tuple[str, ...]) -> ConfigFile:
    return load(text, source, profiles=lambda: profiles or catalog_names())


def _profiles(inventory: Inventory) -> tuple[str, ...]:
    """Return the profiles of the node's GPUs; empty if the catalog has none for them."""
    found: dict[str, None] = {}
    for gpu in inventory.gpus:
        with suppress(KeyError):
            found |= dict.fromkeys(profile_names(inventory.family(gpu)))
    return tuple(found)


def _applies(config: ConfigFile, name: str, inventory: Inventory) -> bool:
    """Report whether a named config selects any GPU of the node and fits the GPUs that it selects."""
    try:
        desired = select(config, name, inventory)
    except AliquotError:
        return False
    return bool(desired.gpus) and not desired.failures


def _list_command(sources: Sequence[NamedConfigSource]) -> str:
    maps = [source.config_map for source in sources if source.text is not None and source.config_map]
    return f"kubectl get configmap {_flags(maps[0])} -o yaml" if maps else ""


def _invalid(error: AliquotError, source: NamedConfigSource) -> ConfigFailure:
    failure = failure_of(error, "InvalidConfig")
    return msgspec.structs.replace(failure, next_step=source.remedy or failure.next_step)


def _flags(name: str) -> str:
    namespace, slash, rest = name.partition("/")
    return f"-n {namespace} {rest}" if slash else name
