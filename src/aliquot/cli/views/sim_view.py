"""The text output for a simulated node: the node as the driver sees it, and its call log."""

from __future__ import annotations

from typing import Any

from aliquot.cli.framework.views import gpu_drawing as draw


def node(state: dict[str, Any]) -> str:
    """Return the node's facts, and a line per GPU, instance and process."""
    head = f"{state['name']}   driver {state['driver']}   NVML {state['nvml']}   boot {state['boot_id']}"
    lines = [head, f"  template {state['template']}   latency {state['latency']}   boots {state['boots']}"]
    for gpu in state["gpus"]:
        lines += _gpu(gpu)
    lines += [_vm(vm) for vm in state["vms"]]
    lines += [f"  session  process {pid}" for pid in state["sessions"]]
    return "\n".join(lines + [f"  fault  {_facts(fault)}" for fault in state["faults"]])


def _gpu(gpu: dict[str, Any]) -> list[str]:
    mode = f"MIG {gpu['mig']['current']}" + (
        f" ({gpu['mig']['pending']} pending)" if gpu["mig"]["pending"] != gpu["mig"]["current"] else ""
    )
    lost = "   LOST" if gpu["lost"] else ""
    rows = [_instance(instance) for instance in gpu["instances"]] + [_process(process) for process in gpu["processes"]]
    rows += [_vgpu(vgpu) for vgpu in gpu["vgpus"]]
    return [f"GPU {gpu['handle']}  {gpu['pci']}  {gpu['product']}   {mode}{_kernel(gpu)}{lost}", *draw.table(rows)]


def _vm(vm: dict[str, Any]) -> str:
    return f"  vm  {vm['name']} (process {vm['pid']}) has {', '.join(vm['devices']) or 'no device'} open"


def _kernel(gpu: dict[str, Any]) -> str:
    """Return what differs from a GPU that is not shared with virtual machines."""
    total = gpu["total_functions"] if gpu["world"] else 0
    words = [gpu["world"], f"{gpu['functions']} of {total} VFs" if total else ""]
    words += ["mixed-size mode" if gpu["mixed"] else "", "" if gpu["driver"] == "nvidia" else _driver(gpu)]
    return "".join(f"   {word}" for word in words if word)


def _driver(gpu: dict[str, Any]) -> str:
    return f"driver {gpu['driver'] or 'none'}, not in NVML"


def _vgpu(vgpu: dict[str, Any]) -> tuple[str, str, str]:
    where = [vgpu["uuid"]] if vgpu["uuid"] else []
    where += [f"instance {vgpu['instance']}"] if vgpu["instance"] is not None else []
    where += [f"place {vgpu['placement']}"] if vgpu["placement"] is not None else []
    return f"vGPU {vgpu['function']}", f"{vgpu['type']} ({vgpu['type_id']})", ", ".join(where)


def _instance(instance: dict[str, Any]) -> tuple[str, str, str]:
    inner = ", ".join(f"{c['profile']} (ci {c['id']})" for c in instance["compute_instances"]) or "no compute instance"
    return f"instance {instance['id']}", f"{instance['profile']} at {instance['placement']}", inner


def _process(process: dict[str, Any]) -> tuple[str, str, str]:
    where = "the whole GPU" if process["instance"] is None else f"instance {process['instance']}"
    return f"process {process['pid']}", process["name"], f"on {where}"


def _facts(fault: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in fault.items() if v is not None)


def calls(found: list[dict[str, Any]]) -> str:
    """Return the call log as a table, oldest first."""
    rows: list[tuple[str, ...]] = [("seq", "call", "gpu", "instance", "code", "file")]
    for call in found:
        cells = tuple(_cell(call.get(key)) for key in ("seq", "call", "gpu", "instance", "rc"))
        rows.append((*cells, f"{call['path']} = {str(call['value']).strip()}" if "path" in call else ""))
    return "\n".join(draw.table(rows, indent=""))


def _cell(value: object) -> str:
    return "" if value is None else str(value)
