"""CDI document built from an inventory. Pure.

The content follows the Container Device Interface (SPEC.md of cncf-tags/container-device-interface) and what
``nvidia-ctk cdi generate`` gives to containers. The version is the lowest that has every field in use: readers refuse
versions that they do not know, so a higher version than needed excludes older runtimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aliquot.cdi import device_nodes as nodes
from aliquot.cdi.names import gpu_names, mig_devices, mig_names
from aliquot.cdi.options import (
    COMPAT,
    MARKER_VARIABLE,
    NO_NODES,
    PROFILE,
    SIMULATED_MOUNT_PATH,
    WHOLE_MIG,
    CdiDeviceNode,
    CdiHost,
    CdiMount,
    CdiOptions,
)
from aliquot.cdi.rules import lowest_version
from aliquot.core.model.inventory import Gpu, Inventory

ALL = "all"

NamedNodes = tuple[tuple[str, ...], tuple[CdiDeviceNode, ...]]
"""A device: its names and its nodes."""


def document(inventory: Inventory, options: CdiOptions) -> dict[str, Any]:
    """Return the document as plain data. Without a device to offer, its ``devices`` are empty. CDI does not allow
    that, so such a document must not be written. Raises BlockedError if a device number is unknown.
    """
    host = options.host or CdiHost()
    offered = [*_management(inventory, host)] if options.mode == "management" else _workload(inventory, options)
    if options.all_device and offered and options.mode == "workload":
        everything = dict.fromkeys(node for _, found in offered for node in found)
        offered.append(((ALL,), tuple(everything)))
    return document_of(offered, options)


def document_of(offered: Iterable[NamedNodes], options: CdiOptions) -> dict[str, Any]:
    """Return a document of these devices as plain data, with the edits that every container with a GPU needs."""
    devices = [_device(name, found, options) for names, found in offered for name in names]
    common = _common(options, options.host or CdiHost())
    made = {"cdiVersion": "", "kind": options.kind, "devices": devices, "containerEdits": common}
    made["cdiVersion"] = lowest_version(made)
    return made


def _workload(inventory: Inventory, options: CdiOptions) -> list[NamedNodes]:
    return [each for gpu in inventory.gpus if not gpu.lost for each in _of_gpu(gpu, options)]


def _of_gpu(gpu: Gpu, options: CdiOptions) -> Iterator[NamedNodes]:
    """Yield the devices of a GPU. A GPU in MIG mode is offered as MIG devices, and whole only with ``whole_mig``. A GPU
    that is passed through to a VM is not offered.
    """
    host = options.host or CdiHost()
    if gpu.passthrough:
        return
    if not gpu.mig.enabled or options.whole_mig:
        yield gpu_names(gpu, options.names), nodes.whole_gpu_nodes(gpu, host)
    for index, instance, compute in mig_devices(gpu):
        found = nodes.mig_device_nodes(gpu, instance, compute, host)
        yield mig_names(gpu, index, instance, compute, options.names), found


def _management(inventory: Inventory, host: CdiHost) -> Iterator[NamedNodes]:
    """Yield one device with every node, including those that change instances, for programs that manage the node."""
    gpus = [n for gpu in inventory.gpus if not (gpu.passthrough or gpu.lost) for n in nodes.whole_gpu_nodes(gpu, host)]
    yield (ALL,), tuple(dict.fromkeys((*gpus, *nodes.management_nodes(host))))


def _device(name: str, found: Iterable[CdiDeviceNode], options: CdiOptions) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [_node(n, options) for n in found]}}


def _node(node: CdiDeviceNode, options: CdiOptions) -> dict[str, Any]:
    host = node.host
    if options.dev_root.rstrip("/"):
        host = options.dev_root.rstrip("/") + node.path
    numbers = {"type": "c", "major": node.major, "minor": node.minor, "fileMode": node.mode, "permissions": "rw"}
    return {"path": node.path} | ({"hostPath": host} if host else {}) | numbers


def _common(options: CdiOptions, host: CdiHost) -> dict[str, Any]:
    """Return the edits for every container that has any of the devices. NVIDIA_VISIBLE_DEVICES=void keeps NVIDIA's
    older runtime hook from adding all GPUs.
    """
    env = ["NVIDIA_VISIBLE_DEVICES=void", f"{MARKER_VARIABLE}=v1" + (f",{WHOLE_MIG}" if options.whole_mig else "")]
    mounts = list(host.mounts)
    if options.simulated:
        mounts = [CdiMount(options.simulated, SIMULATED_MOUNT_PATH)]
        env.append(f"LD_LIBRARY_PATH={SIMULATED_MOUNT_PATH}")
    elif host.hook == "" and host.folders:
        mounts += _by_link_names(host)
        env.append("LD_LIBRARY_PATH=" + ":".join(host.folders))
    made: dict[str, Any] = {"env": env, "deviceNodes": [_node(n, options) for n in nodes.control_nodes(host)]}
    if mounts:
        made["mounts"] = [_mount(m) for m in mounts]
    if host.hook and not options.simulated:
        made["hooks"] = _hooks(host, options.mode)
    return made


def _mount(mount: CdiMount) -> dict[str, Any]:
    return {"hostPath": mount.host, "containerPath": mount.container, "options": list(mount.options)}


def _by_link_names(host: CdiHost) -> Iterator[CdiMount]:
    """Yield mounts of each library under the names of its links, for hosts without a program that makes links in the
    container.
    """
    by_path = {m.container: m for m in host.mounts}
    targets = {link: _link_target(link, target) for target, link in host.links}
    for link, target in targets.items():
        while target in targets:
            target = targets[target]
        if target in by_path and link not in by_path:
            yield CdiMount(by_path[target].host, link, by_path[target].options)


def _link_target(link: str, target: str) -> str:
    """Return the target of a link, resolved from the folder of the link."""
    if target.startswith("/"):
        return target
    parts = link.split("/")[:-1]
    for word in target.split("/"):
        if word == "..":
            parts.pop()
        elif word != ".":
            parts.append(word)
    return "/".join(parts)


def _hooks(host: CdiHost, mode: str) -> list[dict[str, Any]]:
    """Return the hooks in nvidia-ctk's order: the two that every version of nvidia-cdi-hook has, which make the
    libraries known in the container, and the newer ones that this version has. Programs that manage the node may make
    device nodes.
    """
    links = [word for target, link in host.links for word in ("--link", f"{target}::{link}")]
    folders = [word for folder in host.folders for word in ("--folder", folder)]
    wanted: dict[str, Sequence[str] | None] = {
        "create-symlinks": links or None,
        COMPAT: host.hooks.get(COMPAT),
        "update-ldcache": folders or None,
        NO_NODES: host.hooks.get(NO_NODES) if mode == "workload" else None,
        PROFILE: host.hooks.get(PROFILE),
    }
    program = host.hook.rpartition("/")[2]
    fixed = [program, "hook"] if program == "nvidia-ctk" else [program]
    return [
        {"hookName": "createContainer", "path": host.hook, "args": [*fixed, name, *words]}
        for name, words in wanted.items()
        if words is not None
    ]
