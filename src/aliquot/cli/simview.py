"""A simulated node for people: the node as the driver sees it, and its call log."""

from __future__ import annotations

from typing import Any

from aliquot.cli import draw


def node(state: dict[str, Any]) -> str:
    """The node's facts, and a line per GPU, instance and process."""
    head = f"{state['name']}   driver {state['driver']}   NVML {state['nvml']}   boot {state['boot_id']}"
    lines = [head, f"  template {state['template']}   latency {state['latency']}   boots {state['boots']}"]
    for gpu in state["gpus"]:
        lines += _gpu(gpu)
    lines += [f"  session  process {pid}" for pid in state["sessions"]]
    return "\n".join(lines + [f"  fault  {_facts(fault)}" for fault in state["faults"]])


def _gpu(gpu: dict[str, Any]) -> list[str]:
    mode = f"MIG {gpu['mig']['current']}" + (
        f" ({gpu['mig']['pending']} pending)" if gpu["mig"]["pending"] != gpu["mig"]["current"] else ""
    )
    lost = "   LOST" if gpu["lost"] else ""
    rows = [_instance(instance) for instance in gpu["instances"]] + [_process(process) for process in gpu["processes"]]
    return [f"GPU {gpu['index']}  {gpu['pci']}  {gpu['product']}   {mode}{lost}", *draw.table(rows)]


def _instance(instance: dict[str, Any]) -> tuple[str, str, str]:
    inner = ", ".join(f"{c['profile']} (ci {c['id']})" for c in instance["compute_instances"]) or "no compute instance"
    return f"instance {instance['id']}", f"{instance['profile']} at {instance['placement']}", inner


def _process(process: dict[str, Any]) -> tuple[str, str, str]:
    where = "the whole GPU" if process["instance"] is None else f"instance {process['instance']}"
    return f"process {process['pid']}", process["name"], f"on {where}"


def _facts(fault: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in fault.items() if v is not None)


def calls(found: list[dict[str, Any]]) -> str:
    """The call log as a table, oldest first."""
    rows: list[tuple[str, ...]] = [("seq", "call", "gpu", "instance", "code")]
    for call in found:
        rows.append(tuple(_cell(call.get(key)) for key in ("seq", "call", "gpu", "instance", "rc")))
    return "\n".join(draw.table(rows, indent=""))


def _cell(value: object) -> str:
    return "" if value is None else str(value)
