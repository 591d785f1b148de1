"""Updates of the CDI files that Aliquot wrote earlier on this host, after a change of the GPUs.

A file shows by its content how it was made: its kind, the forms of its names, the location of the device nodes. Only
its devices are rebuilt. The edits for every container (the driver's files, hooks) do not depend on the GPUs' geometry.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from aliquot.cdi import devices, spec, spec_files
from aliquot.cdi.options import MARKER_VARIABLE, SIMULATED_MAJORS, SIMULATED_MOUNT_PATH, WHOLE_MIG, CdiHost, CdiOptions
from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report

_FORMS = {
    "uuid": re.compile(r"(GPU|MIG)-.*"),
    "index": re.compile(r"\d+(:\d+)?"),
    "type-index": re.compile(r"(gpu|mig)\d+(:\d+)?"),
    "place": re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:.*"),
}
"""The pattern of names by strategy (see ``names``)."""
_WHOLE = re.compile(r"GPU-.*|\d+|gpu\d+|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[^-]*")
_GPU = re.compile(r"/dev/nvidia\d+")


def update_specs(
    inventory: Inventory,
    log: Report,
    simulated: str = "",
    directories: Iterable[str] = (),
) -> None:
    """Rewrite each file of ours whose devices differ from ``inventory``. A file without devices is suspended until
    there are some. ``simulated`` is the folder of a simulated node; then only its files are updated. ``directories``
    default to those of all runtimes. The GPUs have changed already, so a failure is logged and the remaining files are
    still updated.
    """
    for directory in directories or spec_files.DIRECTORIES:
        ours = set(spec_files.own_files(directory))
        known = {path: found for path, found in spec_files.read(directory) if path in ours} if ours else {}
        for path, found in (*known.items(), *spec_files.suspended(directory)):
            try:
                if _belongs_to(found, simulated):
                    _update_spec(path, found, inventory, simulated, log)
            except Exception as error:  # noqa: BLE001 - a user may have edited the document in any way
                log(
                    f"note: {path} was not updated: {_reason(error)}; "
                    "repeat the 'aliquot cdi generate' command that wrote it"
                )


def _reason(error: Exception) -> str:
    if isinstance(error, AliquotError):
        return error.brief
    return f"unexpected content ({type(error).__name__}: {error})"


def _update_spec(path: str, found: dict[str, Any], inventory: Inventory, simulated: str, log: Report) -> None:
    made = with_current_devices(found, inventory, _current_host(inventory, found, simulated))
    exists = os.path.lexists(path)
    if not made["devices"]:
        if exists:
            spec_files.suspend(path)
            log(f"suspended {path}: no device is left to offer; it returns with the next one")
    elif made["devices"] != found["devices"] or not exists:
        spec_files.write(path, made, form=spec_files.form_on_disk(path))
        log(f"updated {path}")
        spec_files.forget_suspended(path)


def with_current_devices(document: Mapping[str, Any], inventory: Inventory, host: CdiHost) -> dict[str, Any]:
    """Return the document with the devices of an inventory."""
    made = spec.document(inventory, replace(options_of(document), host=host))
    return {**document, "devices": made["devices"], "cdiVersion": max(document["cdiVersion"], made["cdiVersion"])}


def options_of(document: Mapping[str, Any]) -> CdiOptions:
    """Return the options by which a document of ours was made, as far as they concern its devices."""
    vendor, _, class_name = str(document["kind"]).partition("/")
    managing = vendor == "management.nvidia.com"
    own_devices = [device for device in document["devices"] if device["name"] != spec.ALL]
    named = [form for device in own_devices for form, pattern in _FORMS.items() if pattern.fullmatch(device["name"])]
    return CdiOptions(
        vendor="" if managing else vendor,
        class_name=class_name,
        names=tuple(dict.fromkeys(named)) or CdiOptions().names,
        mode="management" if managing else "workload",
        all_device=managing or len(own_devices) < len(document["devices"]),
        whole_mig=_names_choice(document, WHOLE_MIG) or _offers_partitioned_gpus_whole(own_devices),
        dev_root=next(_roots(document), ""),
    )


def _names_choice(document: Mapping[str, Any], choice: str) -> bool:
    """Report whether our marker variable lists an option that the devices need not show."""
    env = document.get("containerEdits", {}).get("env", ())
    return any(
        choice in value.split(",")
        for name, _, value in (word.partition("=") for word in env)
        if name == MARKER_VARIABLE
    )


def _offers_partitioned_gpus_whole(own_devices: Iterable[Mapping[str, Any]]) -> bool:
    """Report whether a GPU is offered whole beside its MIG devices. Files of earlier releases do not show the option
    otherwise.
    """
    whole: set[str] = set()
    partitioned: set[str] = set()
    for device in own_devices:
        paths = {node["path"] for node in device["containerEdits"].get("deviceNodes", ())}
        (whole if _WHOLE.fullmatch(device["name"]) else partitioned).update(filter(_GPU.fullmatch, paths))
    return bool(whole & partitioned)


def _roots(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the host roots of the device nodes that have a host path."""
    for device in document["devices"]:
        for node in device["containerEdits"].get("deviceNodes", ()):
            if str(node.get("hostPath", "")).endswith(node["path"]):
                yield node["hostPath"].removesuffix(node["path"])


def _belongs_to(document: Mapping[str, Any], simulated: str) -> bool:
    """Report whether a document belongs to this host, or to the simulated node in a folder."""
    mounts = document.get("containerEdits", {}).get("mounts", ())
    folder = next((m["hostPath"] for m in mounts if m["containerPath"] == SIMULATED_MOUNT_PATH), "")
    return folder == simulated or (bool(simulated) and folder.startswith(f"{simulated}/"))


def _current_host(inventory: Inventory, document: Mapping[str, Any], simulated: str) -> CdiHost:
    if simulated:
        return CdiHost(majors=SIMULATED_MAJORS)
    root = next(_roots(document), "") or "/"
    return CdiHost(
        majors=devices.majors(),
        drm=devices.drm(gpu.pci for gpu in inventory.gpus),
        extras=devices.extras(root),
        modeset=devices.node("/dev/nvidia-modeset", root) is not None,
    )
