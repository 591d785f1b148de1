"""Rows about the processes themselves: agents, controllers, the page."""

from __future__ import annotations

from aliquot.metrics.metric import (
    AGENT,
    CLAIMS,
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

_A, _D, _R, _C, _S, _W = (AGENT,), (DEVICES,), (CLAIMS,), (CONTROLLER,), (SLURM,), (DASHBOARD,)
_REQUEST = ("verb", "resource", "status")

EVERY = (info("aliquot_build_info", "the version that runs", tuple(PROCESSES), ("version",)),)

HOSTS = (
    gauge("aliquot_driver_call_seconds",
          "age of the oldest running driver call; 0 while none runs",
          (HOST,), ("Hostname",)),
)  # fmt: skip

AGENTS: tuple[Metric, ...] = (
    gauge("aliquot_state_files_unreadable",
          "files of the state directory that cannot be parsed, including those set aside, until they are removed",
          (AGENT, DEVICES, CLAIMS, HOST), ("node", "kind")),
    gauge("aliquot_agent_state", "1 for the state that the node is in: pending, rebooting, success, failed",
          _A, ("node", "state")),
    counter("aliquot_agent_applies_total", "applies, by outcome", _A, ("node", "outcome")),
    histogram("aliquot_agent_apply_seconds", "duration of applies", _A),
    counter("aliquot_agent_looks_total", "observations", _A, ("node",)),
    counter("aliquot_agent_api_requests_total", "requests to the API server", _A, _REQUEST),
    gauge("aliquot_agent_driver_call_seconds",
          "age of the oldest running driver call; 0 while none runs", _A, ("node",)),
    gauge("aliquot_agent_gpus", "GPUs of the node; aliquot_gpus is the same on every page", _A, ("node",)),
    gauge("aliquot_agent_instances", "GPU instances; aliquot_instances has more labels", _A, ("node", "profile")),
    gauge("aliquot_agent_settings_invalid",
          "invalid settings ConfigMaps: their previous content remains in force", _A, ("node",)),
    gauge("aliquot_devices_state", "1 for the state of the agent: working, waiting, idle", _D, ("node", "state")),
    counter("aliquot_devices_looks_total", "observations of hardware and objects", _D, ("node",)),
    counter("aliquot_devices_applies_total", "applies of desired states, by outcome", _D, ("node", "outcome")),
    histogram("aliquot_devices_apply_seconds", "duration of these applies", _D),
    counter("aliquot_devices_writes_total", "changes of objects", _D, ("verb", "kind")),
    counter("aliquot_devices_api_requests_total", "requests to the API server", _D, _REQUEST),
    gauge("aliquot_devices_driver_call_seconds",
          "age of the oldest running driver call; 0 while none runs", _D, ("node",)),
    gauge("aliquot_devices_vgpus", "vGPUs that exist; aliquot_vgpus has more labels", _D, ("node", "type")),
    gauge("aliquot_devices_unmet", "objects that differ from their desired state", _D, ("node", "kind")),
    gauge("aliquot_claims_state", "1 for the state of the agent: working, waiting", _R, ("node", "state")),
    counter("aliquot_claims_looks_total", "observations of GPUs and claims", _R, ("node",)),
    counter("aliquot_claims_applies_total", "changes of GPUs for claims, by outcome", _R, ("node", "outcome")),
    histogram("aliquot_claims_apply_seconds", "duration of these changes", _R),
    counter("aliquot_claims_api_requests_total", "requests to the API server", _R, _REQUEST),
    gauge("aliquot_claims_driver_call_seconds",
          "age of the oldest running driver call; 0 while none runs", _R, ("node",)),
    gauge("aliquot_claims_prepared", "prepared ResourceClaims", _R, ("node",)),
    gauge("aliquot_claims_lost", "prepared ResourceClaims whose device does not exist now", _R, ("node",)),
    counter("aliquot_claims_prepares_total", "answers to kubelet about a claim: prepared, failed",
            _R, ("node", "outcome")),
    histogram("aliquot_claims_prepare_seconds", "duration from kubelet's call to the answer", _R),
    gauge("aliquot_claims_published_devices", "devices in the node's ResourceSlices", _R, ("node",)),
    counter("aliquot_claims_slice_writes_total", "writes of ResourceSlices", _R, ("node",)),
)  # fmt: skip

CONTROLLERS: tuple[Metric, ...] = (
    gauge("aliquot_controller_leading", "1 while this process holds the Lease", _C),
    gauge("aliquot_controller_nodes", "nodes of the cluster", _C),
    counter("aliquot_controller_writes_total", "objects written", _C, ("what",)),
    counter("aliquot_controller_failures_total", "writes that were refused", _C, ("what",)),
    gauge("aliquot_controller_vm_devices",
          "GPUs and vGPUs for VMs: total, usable, allocated, pending, stopped, allocatable",
          _C, ("resource", "what")),
    gauge("aliquot_controller_vm_claim_devices",
          "devices that VMs have or want through ResourceClaims: allocated, pending, stopped",
          _C, ("device_class", "what")),
    gauge("aliquot_controller_waiting_pods",
          "unscheduled pods that request GPUs; state is waiting, or hinted if a near miss was reported",
          _C, ("state",)),
    gauge("aliquot_controller_longest_wait_start_timestamp_seconds",
          "when the longest-waiting pod started to wait; absent while no pod waits", _C),
    counter("aliquot_controller_reviews_total", "admission reviews that were answered", _C, ("path", "verdict")),
    counter("aliquot_controller_ratings_total",
            "pods that the scheduler extender was asked about: rated, no_gpu, not_ready, not_understood, late",
            _C, ("outcome",)),
    counter("aliquot_controller_definitions_overwritten_total",
            "definitions of Harvester's kinds that another program overwrote soon after their repair",
            _C, ("kind",)),
    gauge("aliquot_controller_certificate_expiry_timestamp_seconds",
          "when the webhooks' certificate expires; absent without a certificate", _C),
)  # fmt: skip

SLURM_ROWS: tuple[Metric, ...] = (
    gauge("aliquot_slurm_up", "1 if Slurm answered the last query", _S),
    gauge("aliquot_slurm_last_look_timestamp_seconds", "when Slurm and the nodes were last read", _S),
    gauge("aliquot_slurm_jobs",
          "pending jobs that request GPUs; state is covered, cut, drained, waits, alone or stuck", _S, ("state",)),
    gauge("aliquot_slurm_oldest_demand_timestamp_seconds",
          "when the job that waits longest for MIG devices became eligible; 0 while none waits", _S),
    gauge("aliquot_slurm_records", "node records, by state: idle, busy, changing, shut, failed",
          _S, ("state",)),
    gauge("aliquot_slurm_free_devices", "devices that are free for a job, by type", _S, ("type",)),
    counter("aliquot_slurm_changes_total", "changes of a node record, by outcome: done or failed",
            _S, ("node", "outcome")),
    histogram("aliquot_slurm_change_seconds", "duration of a change, including drain and registration", _S),
    gauge("aliquot_slurm_change_started_timestamp_seconds", "start of the oldest running change; 0 while none runs",
          _S),
    histogram("aliquot_slurm_start_seconds",
              "time from a job's eligibility to its start, for jobs for which a node was partitioned", _S),
)  # fmt: skip

DASHBOARD_ROWS: tuple[Metric, ...] = (
    gauge("aliquot_fleet_nodes", "nodes on the page; state is fresh, stale or unknown", _W, ("state",)),
    gauge("aliquot_fleet_gpus", "GPUs of all nodes", _W),
    gauge("aliquot_fleet_instances", "GPU instances of all nodes; state is held or idle", _W, ("profile", "state")),
    gauge("aliquot_fleet_profile_fits", "how many more instances of a profile fit on all nodes",
          _W, ("profile", "arrangement")),
    gauge("aliquot_fleet_free_memory_slices", "memory slices that no instance covers, of all nodes", _W),
    gauge("aliquot_fleet_stranded_memory_slices",
          "free memory slices of all nodes into which no requested profile fits", _W),
    gauge("aliquot_fleet_drift", "differences from the desired state, of all nodes", _W, ("kind",)),
    gauge("aliquot_dashboard_streams", "open pages with live updates", _W),
    counter("aliquot_dashboard_asks_total", "requested previews", _W),
    counter("aliquot_dashboard_refused_logins_total", "sign-ins with a wrong token", _W),
)  # fmt: skip

ROWS = (*EVERY, *HOSTS, *AGENTS, *CONTROLLERS, *SLURM_ROWS, *DASHBOARD_ROWS)
