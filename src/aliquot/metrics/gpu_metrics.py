"""The rows about GPUs, instances and changes: the same on every page that has them."""

from __future__ import annotations

from aliquot.metrics.labels import GPU, INSTANCE
from aliquot.metrics.metric import AGENT, DASHBOARD, DEVICES, HOST, Metric, counter, gauge, histogram, info

OBSERVERS = (AGENT, DEVICES, HOST)
CHANGERS = (AGENT, DEVICES, DASHBOARD)

NODE: tuple[Metric, ...] = (
    gauge("aliquot_gpus", "GPUs that the node has", OBSERVERS, ("Hostname",)),
    gauge("aliquot_look_success", "1 if the last look at the GPUs succeeded; if not, no figures about GPUs are here",
          OBSERVERS, ("Hostname",)),
    gauge("aliquot_last_look_timestamp_seconds", "when the GPUs were last read", OBSERVERS, ("Hostname",)),
    gauge("aliquot_drift", "differences from what was asked of the GPUs, 0 of kind none; absent where nobody asked",
          OBSERVERS, ("Hostname", "kind")),
    gauge("aliquot_wish_blocked", "GPUs whose wish cannot be met now, by the rule in the way; absent where none is",
          (AGENT, DEVICES), ("Hostname", "rule")),
    gauge("aliquot_unhealthy_devices", "GPUs and instances that get no new work because of a fault (Xid)",
          (AGENT, DEVICES), ("Hostname",)),
)  # fmt: skip

GPUS: tuple[Metric, ...] = (
    info("aliquot_gpu_info", "what the GPU is", OBSERVERS,
          (*GPU, "device", "model_name", "driver", "family", "confidence")),
    gauge("aliquot_gpu_lost", "1 if the GPU has fallen off the bus", OBSERVERS, GPU),
    gauge("aliquot_gpu_passthrough", "1 if the GPU is handed out whole to a virtual machine (vfio-pci)",
          OBSERVERS, GPU),
    gauge("aliquot_gpu_mig_enabled", "1 if MIG mode is on, 0 if off; absent for a GPU without MIG", OBSERVERS, GPU),
    gauge("aliquot_gpu_mig_pending", "1 if MIG mode will be another after the next reset", OBSERVERS, GPU),
    gauge("aliquot_gpu_drift", "differences from what was asked of this GPU; absent where nobody asked",
          OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_slices", "memory slices of a GPU in MIG mode", OBSERVERS, GPU),
    gauge("aliquot_gpu_free_memory_slices", "memory slices that no instance covers", OBSERVERS, GPU),
    gauge("aliquot_gpu_stranded_memory_slices",
          "holes: free memory slices that nothing wanted fits into (any profile where nobody asked for one)",
          OBSERVERS, GPU),
    gauge("aliquot_gpu_profile_fits", "how many more instances of a profile the GPU takes",
          OBSERVERS, (*GPU, "profile", "arrangement")),
    gauge("aliquot_instances", "GPU instances by profile; state is held or idle",
          OBSERVERS, (*GPU, "profile", "state")),
    gauge("aliquot_vgpus", "vGPUs by type; state is held or idle", OBSERVERS, (*GPU, "type", "state")),
    gauge("aliquot_virtual_functions", "virtual functions that are on", OBSERVERS, GPU),
    gauge("aliquot_virtual_functions_limit", "virtual functions that the GPU can have", OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_used_bytes", "memory in use on a GPU outside MIG mode", OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_size_bytes", "memory of a GPU outside MIG mode", OBSERVERS, GPU),
)  # fmt: skip

INSTANCES: tuple[Metric, ...] = (
    info("aliquot_instance_info", "where a GPU instance lies, and its MIG device",
          OBSERVERS, (*INSTANCE, "device", "model_name", "placement", "mig_uuid")),
    gauge("aliquot_instance_held", "1 if a process, pod, machine, job or container is on the instance",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_used_bytes", "memory in use; absent where the driver does not say",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_size_bytes", "memory that the instance has; absent where the driver does not say",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_peak_bytes", "the most memory seen in use while watched", OBSERVERS, INSTANCE),
    gauge("aliquot_instance_compute_utilization_ratio",
          "share of the multiprocessors that were busy, as GPM measures it; absent where nothing measures it",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_idle_since_timestamp_seconds",
          "since when nobody has been on the instance; absent while it is held, or where nobody has watched",
          OBSERVERS, INSTANCE),
    info("aliquot_instance_smaller_profile_info",
          "a smaller profile would have held all that was seen in use", OBSERVERS, (*INSTANCE, "smaller")),
)  # fmt: skip

CHANGES: tuple[Metric, ...] = (
    counter("aliquot_changes_total", "plans that were carried out, by how that ended", CHANGERS, ("outcome",)),
    histogram("aliquot_change_seconds", "how long carrying out a plan took", CHANGERS),
    histogram("aliquot_change_step_seconds", "how long each step took; waiting for holders counts to its act",
              CHANGERS, ("step",)),
    counter("aliquot_change_failures_total", "changes that failed or were refused, by the error's code",
            CHANGERS, ("code",)),
    counter("aliquot_change_retries_total", "attempts after one that had failed", (AGENT, DEVICES)),
    counter("aliquot_acts_total", "acts that were carried out, those of undoing counted too",
            CHANGERS, ("act", "profile")),
    counter("aliquot_held_refusals_total", "changes refused, or cut short, because something was held", CHANGERS),
    gauge("aliquot_change_started_timestamp_seconds", "when the change that is under way began; 0 while none is",
          CHANGERS),
)  # fmt: skip

ROWS = (*NODE, *GPUS, *INSTANCES, *CHANGES)
