"""The control requests of people and tests for a simulated node: hold, manual changes, faults, reboot, show."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from aliquot.sim import codes, faults
from aliquot.sim.call_names import unknown_call
from aliquot.sim.codes import NvmlRefusalError
from aliquot.sim.driver import sensor_values as sensors
from aliquot.sim.driver.gpu import SimGpu
from aliquot.sim.driver.mig_calls import WRITES
from aliquot.sim.driver.nvml_calls import nvml_version
from aliquot.sim.driver.usage import hold
from aliquot.sim.kernel import control_api as kernel
from aliquot.sim.kernel import rules
from aliquot.sim.node import SimNode
from aliquot.sim.session import SimSession
from aliquot.sim.state import WHOLE, InjectedFault, ProcessState
from aliquot.sim.template import HOSTS, is_driver, mig_uuid

Request = dict[str, Any]
REPLACEMENTS = ("590.44.01", "580.65.06")
"""Default versions of a replacement driver."""


class BadRequestError(Exception):
    """The request is invalid; the text says why."""


def control(node: SimNode, session: SimSession, request: Request) -> object:
    """Execute one request; ``do`` names it. Raises BadRequestError, or NvmlRefusalError as NVML does."""
    handler = _HANDLERS.get(str(request.get("do")))
    if handler is None:
        raise BadRequestError(f"no request {request.get('do')!r}; there are: {', '.join(sorted(_HANDLERS))}")
    return handler(node, session, request)


def find_gpu(node: SimNode, word: object) -> SimGpu:
    """Return a GPU by index, PCI address or UUID."""
    for gpu in node.gpus:
        if word in (gpu.state.index, str(gpu.state.index), gpu.state.pci, gpu.state.uuid):
            return gpu
    count = len(node.gpus)
    known = f"it has GPUs 0 to {count - 1}" if count > 1 else "it has only GPU 0" if count else "it has none"
    raise BadRequestError(f"no GPU {word!r} on {node.state.name}: {known}")


def find_instance(gpu: SimGpu, word: object) -> tuple[int, int]:
    """Parse ``7``, ``"7"`` or ``"7/1"`` (compute instance 1 of GPU instance 7); None is the whole GPU."""
    if word is None or word == "":
        return WHOLE, WHOLE
    gi, _, ci = str(word).partition("/")
    if not re.fullmatch(r"\d{1,9}(/\d{1,9})?", str(word), re.ASCII):
        raise BadRequestError(f"{word!r} is not an instance (expected for example 7, or 7/0)")
    if int(gi) not in [i.id for i in gpu.state.instances]:
        raise BadRequestError(f"no GPU instance {gi} on GPU {gpu.state.index} ({gpu.state.pci})")
    return int(gi), int(ci or 0)


def _show(node: SimNode, _session: SimSession, _request: Request) -> object:
    return snapshot(node) | {
        "gpus": [_gpu(node, gpu) for gpu in node.gpus],
        **kernel.node_summary(node),
        "template": node.state.template,
        "latency": node.state.latency,
        "boots": node.state.boots,
        "sessions": [s.pid for s in node.sessions.values()],
        "faults": [msgspec.to_builtins(f) for f in node.faults.active],
    }


def snapshot(node: SimNode) -> dict[str, object]:
    """Return NVML's view of the node in plain values."""
    return {
        "name": node.state.name,
        "driver": node.state.driver,
        "nvml": nvml_version(node),
        "boot_id": node.state.boot_id,
        "gpus": [_gpu(node, gpu) for gpu in node.visible],
    }


def _gpu(node: SimNode, gpu: SimGpu) -> dict[str, object]:
    """Return a GPU in plain values. ``index`` is NVML's, -1 if another driver has the GPU; ``handle`` is its position
    on the bus.
    """
    state = gpu.state
    plain = ("product", "pci", "uuid", "minor", "pci_device", "subsystem", "architecture", "memory_mib")
    facts: dict[str, object] = {k: getattr(state, k) for k in (*plain, "family", "swapped", "guest", "lost")}
    facts |= {"index": node.index(gpu), "handle": state.index, **kernel.gpu_summary(gpu)}
    words = ("disabled", "enabled")
    facts["mig"] = {
        "capable": gpu.table is not None,
        "current": words[state.mig],
        "pending": words[state.pending],
    }
    facts["instances"] = [_instance(gpu, i.id) for i in state.instances]
    facts["processes"] = [
        {
            "pid": p.pid,
            "name": p.name,
            "instance": p.gi if p.gi != WHOLE else None,
            "compute_instance": p.ci if p.ci != WHOLE else None,
            "memory_mib": p.memory_mib,
            "busy": p.busy,
        }
        for p in state.processes
    ]
    return facts


def _instance(gpu: SimGpu, instance_id: int) -> dict[str, object]:
    instance = gpu.instance(instance_id)
    family = gpu.family_table.family
    profile = family.by_id[instance.profile]
    names = {c.id: c.name for c in profile.compute}
    return {
        "id": instance.id,
        "profile": profile.name,
        "profile_id": profile.id,
        "placement": f"{instance.start}:{instance.size}",
        "memory_mib": sensors.instance_memory_mib(family, profile, gpu.state.memory_mib),
        **({"mixed": instance.mixed} if rules.mixed_inside_possible(gpu.state) else {}),
        "scheduler": [instance.scheduler.policy, instance.scheduler.strict, instance.scheduler.time_slice]
        if rules.shared_instance(gpu.state, instance)
        else None,
        "compute_instances": [
            {
                "id": c.id,
                "profile": names[c.profile],
                "profile_id": c.profile,
                "placement": f"{c.start}:{c.size}",
                "uuid": mig_uuid(gpu.state, instance.id, c.id, gpu.driver_major),
            }
            for c in instance.compute
        ],
    }


def _hold(node: SimNode, session: SimSession, request: Request) -> object:
    gpu = find_gpu(node, request.get("gpu"))
    gi, ci = find_instance(gpu, request.get("instance"))
    memory, busy = request.get("memory"), request.get("busy")
    if memory is not None and not (isinstance(memory, int) and 0 <= memory <= gpu.state.memory_mib):
        raise BadRequestError(f"a process on this GPU can have 0 to {gpu.state.memory_mib} MiB of memory, not {memory}")
    if busy is not None and not (isinstance(busy, (int, float)) and 0 <= busy <= 1):
        raise BadRequestError(f"busy is a share from 0 to 1, not {busy}")
    pid = request.get("pid")
    if pid is None:
        pid, node.state.next_pid = node.state.next_pid, node.state.next_pid + 1
    name = str(request.get("name") or "python3").replace("\n", " ").replace("|", " ")
    process = ProcessState(int(pid), name, gi, ci)
    process.memory_mib = process.memory_mib if memory is None else memory
    process.busy = process.busy if busy is None else float(busy)
    hold(gpu, process)
    node.save()
    return {"pid": int(pid)}


def _release(node: SimNode, session: SimSession, request: Request) -> object:
    gpu = find_gpu(node, request.get("gpu"))
    gi, ci = find_instance(gpu, request.get("instance"))
    exact = "/" in str(request.get("instance"))
    gone = [p for p in gpu.state.processes if p.gi == gi and (not exact or p.ci == ci)]
    gpu.state.processes = [p for p in gpu.state.processes if p not in gone]
    node.save()
    return {"released": len(gone)}


def _terminate(node: SimNode, session: SimSession, request: Request) -> object:
    pid, count = int(request["pid"]), 0
    count += kernel.end(node, lambda vm: vm.pid == pid)
    for gpu in node.gpus:
        count += sum(p.pid == pid for p in gpu.state.processes)
        gpu.state.processes = [p for p in gpu.state.processes if p.pid != pid]
    node.save()
    return {"released": count}


def _create(node: SimNode, session: SimSession, request: Request) -> object:
    gpu = find_gpu(node, request.get("gpu"))
    word, start = str(request.get("profile")), request.get("start")
    profile = next((p for p in gpu.profiles if word in (p.name, *p.aliases, str(p.id), f"id:{p.id}")), None)
    if profile is None:
        known = ", ".join(p.name for p in gpu.profiles) or "none: this GPU has no MIG"
        raise BadRequestError(f"GPU {gpu.state.index} has no profile {word!r}; it has: {known}")
    index = gpu.state.index
    if start is None:
        gi = int(WRITES["DeviceCreateGpuInstance"](node, session, [index, WHOLE, WHOLE, profile.id]))
    else:
        arguments = [index, WHOLE, WHOLE, profile.id, int(start), profile.size]
        gi = int(WRITES["DeviceCreateGpuInstanceWithPlacement"](node, session, arguments))
    if request.get("compute", True):
        WRITES["GpuInstanceCreateComputeInstance"](node, session, [index, gi, WHOLE, profile.default_compute.id])
    return {"instance": gi}


def _destroy(node: SimNode, session: SimSession, request: Request) -> object:
    gpu = find_gpu(node, request.get("gpu"))
    gi, ci = find_instance(gpu, request.get("instance"))
    if gi == WHOLE:
        raise BadRequestError("destroy needs an instance")
    if any(p.gi == gi for p in gpu.state.processes):
        raise NvmlRefusalError(codes.IN_USE)
    index = gpu.state.index
    if "/" in str(request.get("instance")):
        WRITES["ComputeInstanceDestroy"](node, session, [index, gi, ci])
        return {}
    for compute in list(gpu.instance(gi).compute):
        WRITES["ComputeInstanceDestroy"](node, session, [index, gi, compute.id])
    WRITES["GpuInstanceDestroy"](node, session, [index, gi, WHOLE])
    return {}


def _mode(node: SimNode, session: SimSession, request: Request) -> object:
    gpu = find_gpu(node, request.get("gpu"))
    requested = int(bool(request.get("enabled")))
    status = int(WRITES["DeviceSetMigMode"](node, session, [gpu.state.index, WHOLE, WHOLE, requested]))
    return {"activation": status}


def _reset(node: SimNode, session: SimSession, request: Request) -> object:
    caller = SimSession("", session.pid, session.privileged, caller_ended=session.caller_ended)
    WRITES["DeviceReset"](node, caller, [find_gpu(node, request.get("gpu")).state.index, WHOLE, WHOLE, WHOLE])
    return {}


def _fault(node: SimNode, session: SimSession, request: Request) -> object:
    kind = request.get("kind")
    if kind == "none":
        node.faults.active.clear()
        node.save()
        return {}
    given = {k: v for k, v in request.items() if v is not None and k not in ("do", "kind")}
    call = given.get("call")
    error = (unknown_call(str(call), kind) if call is not None else "") or faults.field_error(kind, given)
    if error:
        raise BadRequestError(error)
    if kind == "xid":
        return _xid(node, request)
    fault = _injected_fault(node, kind, given)
    if inconsistency := faults.consistency_error(fault):
        raise BadRequestError(inconsistency)
    after = given.get("after")
    if fault.kind == "lost" and not after:
        node.lose(node.gpu(fault.gpu if fault.gpu is not None else WHOLE))
    elif fault.kind == "replace-driver" and not after:
        node.replace_driver(fault.version or node.state.driver)
    else:
        node.faults.active.append(fault)
    node.save()
    return {}


def _injected_fault(node: SimNode, kind: object, given: Request) -> InjectedFault:
    facts = {k: v for k, v in given.items() if k not in ("seconds", "after", "gpu")} | {"kind": kind}
    seconds = given.get("seconds")
    if "gpu" in given:
        facts["gpu"] = find_gpu(node, given["gpu"]).state.index
    if kind in ("vf-delay", "slow"):
        facts["delay"] = float(seconds or 0)
    elif seconds is not None:
        facts["until"] = node.environment.now() + float(seconds)
    if kind in ("lost", "replace-driver"):
        facts["nth"] = int(given.get("after") or 0)
    if kind == "replace-driver":
        facts["version"] = _other_driver(node, facts.get("version"))
    return msgspec.convert(facts, InjectedFault)


def _other_driver(node: SimNode, version: object) -> str:
    """Return the version of the replacement driver: the requested one, else the first default that is not loaded."""
    if version is None:
        return next(v for v in REPLACEMENTS if v != node.state.driver)
    if not is_driver(str(version)):
        raise BadRequestError(f"{version!r} is not a driver version (expected for example {REPLACEMENTS[0]})")
    return str(version)


def _xid(node: SimNode, request: Request) -> object:
    """Emit an XID error. It is an event and not a state: nothing is stored, and nothing else fails."""
    if request.get("gpu") is None or not isinstance(request.get("code"), int):
        raise BadRequestError("fault xid needs a GPU and a code (the XID)")
    gpu = find_gpu(node, request["gpu"])
    gi, ci = find_instance(gpu, request.get("instance"))
    node.events.emit(gpu.state.index, request["code"], gi, ci if "/" in str(request.get("instance")) else WHOLE)
    return {}


def _reboot(node: SimNode, session: SimSession, request: Request) -> object:
    host = request.get("kernel")
    if host not in (None, "none", *HOSTS):
        raise BadRequestError(f"no kernel {host!r}; there are: {', '.join(HOSTS)}, none")
    node.reboot(str(request.get("boot_id") or ""), "" if host == "none" else host)
    return {"boot_id": node.state.boot_id}


_HANDLERS: dict[str, Callable[[SimNode, SimSession, Request], object]] = {
    "show": _show,
    "hold": _hold,
    "release": _release,
    "terminate": _terminate,
    "create": _create,
    "destroy": _destroy,
    "mode": _mode,
    "reset": _reset,
    "fault": _fault,
    "reboot": _reboot,
    **kernel.HANDLERS,
}
