"""The rows about the processes themselves: agents, controllers, the page."""

from __future__ import annotations

from aliquot.metrics.metric import (
    AGENT,
    CONTROLLER,
    DASHBOARD,
    DEVICES,
    HOST,
    PROCESSES,
    SLURM,
    Metric,
    counter,
    gauge,
    histogram,
    info,
)

_A, _D, _C, _S, _W = (AGENT,), (DEVICES,), (CONTROLLER,), (SLURM,), (DASHBOARD,)
_REQUEST = ("verb", "resource", "status")

EVERY = (info("aliquot_build_info", "what runs here", tuple(PROCESSES), ("version",)),)

HOSTS = (
    gauge("aliquot_driver_call_seconds",
          "how long the oldest driver call has been running that has not returned; 0 while none runs",
          (HOST,), ("Hostname",)),
)  # fmt: skip

AGENTS: tuple[Metric, ...] = (
    gauge("aliquot_state_files_unreadable",
          "files of the state directory that could not be understood, also those set aside, until they are removed",
          (AGENT, DEVICES, HOST), ("node", "kind")),
    gauge("aliquot_agent_state", "1 for the state that the node is in: pending, rebooting, success, failed",
          _A, ("node", "state")),
    counter("aliquot_agent_applies_total", "applies by how they ended", _A, ("node", "outcome")),
    histogram("aliquot_agent_apply_seconds", "how long applies took", _A),
    counter("aliquot_agent_looks_total", "observations", _A, ("node",)),
    counter("aliquot_agent_api_requests_total", "requests to the API server", _A, _REQUEST),
    gauge("aliquot_agent_driver_call_seconds",
          "how long the oldest driver call has been running that has not returned; 0 while none runs", _A, ("node",)),
    gauge("aliquot_agent_gpus", "GPUs of the node; aliquot_gpus is the same on every page", _A, ("node",)),
    gauge("aliquot_agent_instances", "GPU instances; aliquot_instances says more", _A, ("node", "profile")),
    gauge("aliquot_agent_settings_invalid",
          "settings ConfigMaps that cannot be understood: what they said before holds", _A, ("node",)),
    gauge("aliquot_devices_state", "1 for how the agent stands: working, waiting, idle", _D, ("node", "state")),
    counter("aliquot_devices_looks_total", "looks at hardware and objects", _D, ("node",)),
    counter("aliquot_devices_applies_total", "wishes carried out, by how that ended", _D, ("node", "outcome")),
    histogram("aliquot_devices_apply_seconds", "how long that took", _D),
    counter("aliquot_devices_writes_total", "changes of objects", _D, ("verb", "kind")),
    counter("aliquot_devices_api_requests_total", "requests to the API server", _D, _REQUEST),
    gauge("aliquot_devices_driver_call_seconds",
          "how long the oldest driver call has been running that has not returned; 0 while none runs", _D, ("node",)),
    gauge("aliquot_devices_vgpus", "vGPUs that exist; aliquot_vgpus says more", _D, ("node", "type")),
    gauge("aliquot_devices_unmet", "objects that are not as wished", _D, ("node", "kind")),
)  # fmt: skip

CONTROLLERS: tuple[Metric, ...] = (
    gauge("aliquot_controller_leading", "1 while this process holds the Lease", _C),
    gauge("aliquot_controller_nodes", "nodes of the cluster", _C),
    counter("aliquot_controller_writes_total", "objects written", _C, ("what",)),
    counter("aliquot_controller_failures_total", "writes that were refused", _C, ("what",)),
    gauge("aliquot_controller_vm_devices",
          "GPUs and vGPUs for virtual machines: total, usable, allocated, pending, stopped, allocatable",
          _C, ("resource", "what")),
    gauge("aliquot_controller_waiting_pods",
          "pods that no node has taken and that ask for GPUs; state is waiting, or hinted where a near miss was told",
          _C, ("state",)),
    gauge("aliquot_controller_longest_wait_start_timestamp_seconds",
          "since when the pod has been waiting that waits longest; absent while none does", _C),
    counter("aliquot_controller_reviews_total", "admission reviews that were answered", _C, ("path", "verdict")),
    gauge("aliquot_controller_certificate_expiry_timestamp_seconds",
          "when the webhooks' certificate ends; absent before there is one", _C),
)  # fmt: skip

SLURM_ROWS: tuple[Metric, ...] = (
    gauge("aliquot_slurm_up", "1 if Slurm answered at the last look", _S),
    gauge("aliquot_slurm_last_look_timestamp_seconds", "when Slurm and the nodes were last read", _S),
    gauge("aliquot_slurm_jobs",
          "pending jobs that ask for GPUs; state is covered, cut, drained, waits, alone or stuck", _S, ("state",)),
    gauge("aliquot_slurm_oldest_demand_timestamp_seconds",
          "since when the job has been eligible that waits longest for slices; 0 while none does", _S),
    gauge("aliquot_slurm_records", "node records by what can be done with them: idle, busy, changing, shut, failed",
          _S, ("state",)),
    gauge("aliquot_slurm_free_devices", "devices that a job could have now, by type", _S, ("type",)),
    counter("aliquot_slurm_changes_total", "changes of a node record, by how they ended: done or failed",
            _S, ("node", "outcome")),
    histogram("aliquot_slurm_change_seconds", "how long a change took, drain and registration included", _S),
    gauge("aliquot_slurm_change_started_timestamp_seconds", "when the change under way longest began; 0 while none is",
          _S),
    histogram("aliquot_slurm_start_seconds",
              "from a job's being eligible until it was seen running, for jobs that slices were cut for", _S),
)  # fmt: skip

DASHBOARD_ROWS: tuple[Metric, ...] = (
    gauge("aliquot_fleet_nodes", "nodes that the page shows; state is fresh, stale or unknown", _W, ("state",)),
    gauge("aliquot_fleet_gpus", "GPUs of all nodes", _W),
    gauge("aliquot_fleet_instances", "GPU instances of all nodes; state is held or idle", _W, ("profile", "state")),
    gauge("aliquot_fleet_profile_fits", "how many more instances of a profile all nodes take",
          _W, ("profile", "arrangement")),
    gauge("aliquot_fleet_free_memory_slices", "memory slices that no instance covers, of all nodes", _W),
    gauge("aliquot_fleet_stranded_memory_slices", "holes of all nodes: free memory slices that fit nothing wanted", _W),
    gauge("aliquot_fleet_drift", "differences from what was asked, of all nodes", _W, ("kind",)),
    gauge("aliquot_dashboard_streams", "pages that are open and live", _W),
    counter("aliquot_dashboard_asks_total", "previews that were asked for", _W),
    counter("aliquot_dashboard_refused_logins_total", "sign-ins with a wrong token", _W),
)  # fmt: skip

ROWS = (*EVERY, *HOSTS, *AGENTS, *CONTROLLERS, *SLURM_ROWS, *DASHBOARD_ROWS)
