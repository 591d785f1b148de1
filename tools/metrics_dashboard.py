"""The Grafana dashboard as data: rows of panels with their queries."""

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
        "title": "Aliquot: GPUs and instances",
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
    """Return a panel with one number. With ``bad``, a value above 0 is coloured."""
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
    """Return a table of current values."""
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
    stat("Held", "Instances that have a holder.",
         f'sum(node_profile_state:aliquot_instances:sum{{{N}, state="held"}})'),
    stat("Stranded slices", "Free memory slices into which no requested profile fits.",
         f"sum(max by (Hostname, pci_bus_id) (aliquot_gpu_stranded_memory_slices{{{N}}}))"),
    stat("Drift", "Differences from the desired state.",
         f"sum(max by (Hostname, kind) (aliquot_drift{{{N}}}))", bad=True),
    stat("GPUs lost", "GPUs that have fallen off the bus.",
         f"sum(max by (Hostname, pci_bus_id) (aliquot_gpu_lost{{{N}}}))", bad=True),
    lines("Instances by profile", "GPU instances of the chosen nodes.",
          (f"sum by (profile) (node_profile_state:aliquot_instances:sum{{{N}}})", "{{profile}}"), stacked=True),
    lines("What still fits", "How many more instances of each profile fit beside the present ones.",
          ("sum by (profile) (max by (Hostname, pci_bus_id, profile) "
           f'(aliquot_gpu_profile_fits{{{N}, arrangement="now"}}))', "{{profile}}")),
]  # fmt: skip

_HOLES = [
    lines("Stranded slices by node", "Share of memory slices that are free, but fit no requested profile.",
          (f"node:aliquot_gpu_stranded_memory_slices:ratio{{{N}}}", "{{Hostname}}"), unit="percentunit"),
    lines("Free by node", "Share of the memory slices that no instance covers.",
          (f"node:aliquot_gpu_free_memory_slices:ratio{{{N}}}", "{{Hostname}}"), unit="percentunit"),
    rows("Capacity from moving idle instances", "How many more of a profile would fit if idle instances moved.",
         f"gpu_profile:aliquot_gpu_profile_fits:lost{{{N}}} > 0", width=24),
]  # fmt: skip

_INSTANCES = [
    rows("Idle instances", "How long each instance has been idle.",
         f"time() - max by ({GPU}, GPU_I_ID, GPU_I_PROFILE) (aliquot_instance_idle_since_timestamp_seconds{{{N}}})",
         "s"),
    rows("Oversized instances", "A smaller profile has enough memory for the use over at least a day.",
         f"max by ({GPU}, GPU_I_ID, GPU_I_PROFILE, smaller) (aliquot_instance_smaller_profile_info{{{N}}})"),
    lines("Memory in use", "Share of its memory that an instance uses.",
          ("max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) "
           f"(aliquot_instance_memory_used_bytes{{{N}}} / aliquot_instance_memory_size_bytes{{{N}}})",
           "{{Hostname}} {{gpu}}/{{GPU_I_ID}} {{GPU_I_PROFILE}}"), unit="percentunit"),
    lines("Multiprocessors busy", "Only if it is measured: Hopper and later, or dcgm-exporter.",
          (f"max by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE) (aliquot_instance_compute_utilization_ratio{{{N}}})",
           "{{Hostname}} {{gpu}}/{{GPU_I_ID}} {{GPU_I_PROFILE}}"), unit="percentunit"),
]  # fmt: skip

_CHANGES = [
    lines("Changes by outcome", "Applied plans.",
          ("sum by (outcome) (increase(aliquot_changes_total[$__rate_interval]))", "{{outcome}}")),
    lines("Failures by code", "Changes that failed or were refused.",
          ("sum by (code) (increase(aliquot_change_failures_total[$__rate_interval]))", "{{code}}")),
    lines("Duration of a step", "95th percentile.",
          ("histogram_quantile(0.95, sum by (step, le) (rate(aliquot_change_step_seconds_bucket[$__range])))",
           "{{step}}"), unit="s"),
    lines("Acts", "Instances created and destroyed, modes set.",
          ("sum by (act, profile) (increase(aliquot_acts_total[$__rate_interval]))", "{{act}} {{profile}}")),
    lines("Drift by kind", "Differences between the GPUs and their desired state.",
          (f"max by (Hostname, kind) (aliquot_drift{{{N}}}) > 0", "{{Hostname}} {{kind}}")),
    rows("Blocked desired states", "By the blocking rule.",
         f"max by (Hostname, rule) (aliquot_wish_blocked{{{N}}})"),
]  # fmt: skip

_NODE = [
    rows("GPUs", "Identity of each GPU.",
         f"max by ({GPU}, model_name, driver, family, confidence) (aliquot_gpu_info{{{N}}})", width=24),
    rows("Instances", "Placement of each instance.",
         f"max by ({GPU}, GPU_I_ID, GPU_I_PROFILE, placement, mig_uuid) (aliquot_instance_info{{{N}}})", width=24),
    rows("vGPUs", "By type.", f"max by ({GPU}, type, state) (aliquot_vgpus{{{N}}}) > 0"),
    lines("Load of vGPUs", "Share of the GPU's multiprocessors.",
          (f"max by (Hostname, gpu, type, vm) (aliquot_vgpu_compute_utilization_ratio{{{N}}})",
           "{{Hostname}} {{gpu}} {{type}} {{vm}}")),
    rows("Licenses of guests", "1 with a license, 0 without.",
         f"max by ({GPU}, type, vm) (aliquot_vgpu_licensed{{{N}}})"),
    rows("Virtual functions", "Enabled ones.", f"max by ({GPU}) (aliquot_virtual_functions{{{N}}})"),
]  # fmt: skip

_QUEUES = [
    lines("Waiting pods", "Unscheduled pods that request GPUs.",
          ("sum by (state) (aliquot_controller_waiting_pods)", "{{state}}")),
    lines("Waiting Slurm jobs", "Pending jobs that request GPUs, by state.",
          ("sum by (state) (aliquot_slurm_jobs)", "{{state}}")),
    lines("Start of a job after repartitioning", "Median time from a job's eligibility to its start.",
          ("histogram_quantile(0.5, sum by (le) (rate(aliquot_slurm_start_seconds_bucket[$__range])))", "median"),
          unit="s"),
    lines("Changes of Slurm's nodes", "By outcome.",
          ("sum by (node, outcome) (increase(aliquot_slurm_changes_total[$__rate_interval])) > 0",
           "{{node}} {{outcome}}")),
]  # fmt: skip

_ROWS = (
    ("Fleet", False, _FLEET),
    ("Fragmentation", False, _HOLES),
    ("Instances", False, _INSTANCES),
    ("Changes and drift", False, _CHANGES),
    ("Details of the chosen nodes", True, _NODE),
    ("Queues", True, _QUEUES),
)
