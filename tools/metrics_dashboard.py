"""The Grafana dashboard as data: rows of panels, each with the questions that it asks."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
N = 'Hostname=~"$node"'
"""Only the nodes that were chosen above."""
GPU = "Hostname, gpu, UUID, pci_bus_id"


def dashboard() -> JSON:
    panels: list[JSON] = []
    y = 0
    for title, collapsed, row in _ROWS:
        head = {"type": "row", "title": title, "collapsed": collapsed, "gridPos": _place(0, y, 24, 1), "panels": []}
        y += 1
        inner, x, height = [], 0, 0
        for each in row:
            panel = dict(each)
            width, tall = panel.pop("w"), panel.pop("h")
            if x + width > 24:
                x, y, height = 0, y + height, 0
            inner.append(panel | {"gridPos": _place(x, y, width, tall), "datasource": SOURCE})
            x, height = x + width, max(height, tall)
        y += height
        panels += [head | {"panels": inner}] if collapsed else [head, *inner]
    return _whole(_numbered(panels))


def _whole(panels: list[JSON]) -> JSON:
    node = {
        "name": "node",
        "label": "Node",
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": "label_values(aliquot_look_success, Hostname)", "refId": "nodes"},
        "definition": "label_values(aliquot_look_success, Hostname)",
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1}
    return {
        "uid": "aliquot",
        "title": "Aliquot: GPUs and their pieces",
        "description": "Made by tools/build_metrics.py. docs/metrics.md explains every name.",
        "tags": ["aliquot", "gpu", "mig"],
        "editable": True,
        "schemaVersion": 38,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [source, node]},
        "annotations": {"list": []},
        "links": [],
        "panels": panels,
    }


def _numbered(panels: list[JSON], first: int = 1) -> list[JSON]:
    number = first
    for panel in panels:
        panel["id"] = number
        number += 1
        for inner in panel.get("panels", ()):
            inner["id"] = number
            number += 1
    return panels


def _place(x: int, y: int, w: int, h: int) -> JSON:
    return {"x": x, "y": y, "w": w, "h": h}


def _targets(asks: tuple[tuple[str, str], ...], *, now: bool = False) -> list[JSON]:
    more = {"instant": True, "range": False, "format": "table"} if now else {}
    return [
        {"refId": chr(65 + i), "expr": expr, "legendFormat": legend or "__auto", "datasource": SOURCE, **more}
        for i, (expr, legend) in enumerate(asks)
    ]


def _fields(unit: str, steps: tuple[tuple[str, float | None], ...] = ()) -> JSON:
    thresholds = {"mode": "absolute", "steps": [{"color": c, "value": v} for c, v in steps or (("text", None),)]}
    return {"defaults": {"unit": unit, "min": 0, "thresholds": thresholds, "noValue": "-"}, "overrides": []}


_BAD: tuple[tuple[str, float | None], ...] = (("green", None), ("orange", 1))


def stat(title: str, description: str, expr: str, unit: str = "short", *, bad: bool = False) -> JSON:
    """One number. ``bad``: anything above 0 is coloured."""
    return {
        "type": "stat",
        "title": title,
        "description": description,
        "targets": _targets(((expr, ""),)),
        "fieldConfig": _fields(unit, _BAD if bad else ()),
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"},
        "w": 4,
        "h": 4,
    }


def lines(title: str, description: str, *asks: tuple[str, str], unit: str = "short", stacked: bool = False) -> JSON:
    fields = _fields(unit)
    custom: JSON = {"fillOpacity": 20 if stacked else 5, "showPoints": "never"}
    fields["defaults"]["custom"] = custom | ({"stacking": {"mode": "normal"}} if stacked else {})
    return {
        "type": "timeseries",
        "title": title,
        "description": description,
        "targets": _targets(asks),
        "fieldConfig": fields,
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "w": 12,
        "h": 8,
    }


def rows(title: str, description: str, expr: str, unit: str = "short", *, width: int = 12) -> JSON:
    """A table of what is so now."""
    return {
        "type": "table",
        "title": title,
        "description": description,
        "targets": _targets(((expr, ""),), now=True),
        "fieldConfig": _fields(unit),
        "transformations": [{"id": "organize", "options": {"excludeByName": {"Time": True, "__name__": True}}}],
        "options": {"showHeader": True},
        "w": width,
        "h": 8,
    }


_FLEET = [
    stat("GPUs", "GPUs of the chosen nodes.", f"sum(max by (Hostname) (aliquot_gpus{{{N}}}))"),
    stat("Instances", "GPU instances that exist.", f"sum(node_profile_state:aliquot_instances:sum{{{N}}})"),
    stat("Held", "Instances that somebody works on.",
         f'sum(node_profile_state:aliquot_instances:sum{{{N}, state="held"}})'),
    stat("Holes", "Free memory slices that nothing wanted fits into.",
         f"sum(max by (Hostname, pci_bus_id) (aliquot_gpu_stranded_memory_slices{{{N}}}))"),
    stat("Drift", "Differences from what was asked.", f"sum(max by (Hostname, kind) (aliquot_drift{{{N}}}))", bad=True),
    stat("GPUs lost", "GPUs that have fallen off the bus.",
         f"sum(max by (Hostname, pci_bus_id) (aliquot_gpu_lost{{{N}}}))", bad=True),
    lines("Instances by profile", "How the GPUs are divided.",
          (f"sum by (profile) (node_profile_state:aliquot_instances:sum{{{N}}})", "{{profile}}"), stacked=True),
    lines("What still fits", "How many more instances of each profile there is room for, as things lie.",
          ("sum by (profile) (max by (Hostname, pci_bus_id, profile) "
           f'(aliquot_gpu_profile_fits{{{N}, arrangement="now"}}))', "{{profile}}")),
]  # fmt: skip

_HOLES = [
    lines("Holes by node", "Share of the memory slices that are free and of no use for anything wanted.",
          (f"node:aliquot_gpu_stranded_memory_slices:ratio{{{N}}}", "{{Hostname}}"), unit="percentunit"),
    lines("Free by node", "Share of the memory slices that no instance covers.",
          (f"node:aliquot_gpu_free_memory_slices:ratio{{{N}}}", "{{Hostname}}"), unit="percentunit"),
    rows("Room that moving idle instances would give", "How many more of a profile would fit if idle instances moved.",
         f"gpu_profile:aliquot_gpu_profile_fits:lost{{{N}}} > 0", width=24),
]  # fmt: skip

_INSTANCES = [
    rows("Idle for long", "For how long nobody has been on an instance.",
         f"time() - max by ({GPU}, GPU_I_ID, GPU_I_PROFILE) (aliquot_instance_idle_since_timestamp_seconds{{{N}}})",
         "s"),
    rows("A smaller profile would do", "By the memory seen in use over at least a day.",
         f"max by ({GPU}, GPU_I_ID, GPU_I_PROFILE, smaller) (aliquot_instance_smaller_profile_info{{{N}}})"),
    lines("Memory in use", "Share of its memory that an instance uses.",
          ("max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) "
           f"(aliquot_instance_memory_used_bytes{{{N}}} / aliquot_instance_memory_size_bytes{{{N}}})",
           "{{Hostname}} {{gpu}}/{{GPU_I_ID}} {{GPU_I_PROFILE}}"), unit="percentunit"),
    lines("Multiprocessors busy", "Only where something measures it: Hopper and later, or dcgm-exporter.",
          (f"max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) (aliquot_instance_compute_utilization_ratio{{{N}}})",
           "{{Hostname}} {{gpu}}/{{GPU_I_ID}} {{GPU_I_PROFILE}}"), unit="percentunit"),
]  # fmt: skip

_CHANGES = [
    lines("Changes by how they ended", "Plans that were carried out.",
          ("sum by (outcome) (increase(aliquot_changes_total[$__rate_interval]))", "{{outcome}}")),
    lines("Failures by code", "What was refused, or failed.",
          ("sum by (code) (increase(aliquot_change_failures_total[$__rate_interval]))", "{{code}}")),
    lines("A step takes", "Nineteen of twenty took less than this.",
          ("histogram_quantile(0.95, sum by (step, le) (rate(aliquot_change_step_seconds_bucket[$__range])))",
           "{{step}}"), unit="s"),
    lines("Acts", "Instances made and destroyed, modes set.",
          ("sum by (act, profile) (increase(aliquot_acts_total[$__rate_interval]))", "{{act}} {{profile}}")),
    lines("Drift by kind", "How the GPUs differ from what was asked.",
          (f"max by (Hostname, kind) (aliquot_drift{{{N}}}) > 0", "{{Hostname}} {{kind}}")),
    rows("Wishes that are blocked", "By the rule in the way.",
         f"max by (Hostname, rule) (aliquot_wish_blocked{{{N}}})"),
]  # fmt: skip

_NODE = [
    rows("GPUs", "What each GPU is.",
         f"max by ({GPU}, model_name, driver, family, confidence) (aliquot_gpu_info{{{N}}})", width=24),
    rows("Instances", "Where each lies.",
         f"max by ({GPU}, GPU_I_ID, GPU_I_PROFILE, placement, mig_uuid) (aliquot_instance_info{{{N}}})", width=24),
    rows("vGPUs", "By type.", f"max by ({GPU}, type, state) (aliquot_vgpus{{{N}}}) > 0"),
    rows("Virtual functions", "That are on.", f"max by ({GPU}) (aliquot_virtual_functions{{{N}}})"),
]  # fmt: skip

_QUEUES = [
    lines("Pods that wait", "Pods that no node has taken and that ask for GPUs.",
          ("sum by (state) (aliquot_controller_waiting_pods)", "{{state}}")),
    lines("Slurm's jobs that wait", "Pending jobs that ask for GPUs, by what becomes of them.",
          ("sum by (state) (aliquot_slurm_jobs)", "{{state}}")),
    lines("A job that slices were cut for starts after", "Half of them started earlier.",
          ("histogram_quantile(0.5, sum by (le) (rate(aliquot_slurm_start_seconds_bucket[$__range])))", "median"),
          unit="s"),
    lines("Changes of Slurm's nodes", "By how they ended.",
          ("sum by (node, outcome) (increase(aliquot_slurm_changes_total[$__rate_interval])) > 0",
           "{{node}} {{outcome}}")),
]  # fmt: skip

_ROWS = (
    ("Fleet", False, _FLEET),
    ("Holes", False, _HOLES),
    ("Instances", False, _INSTANCES),
    ("Changes and drift", False, _CHANGES),
    ("The chosen nodes, piece by piece", True, _NODE),
    ("Who waits", True, _QUEUES),
)
