"""Rows about GPUs, instances and changes: the same on every page that has them."""

from __future__ import annotations

from aliquot.metrics.labels import GPU, INSTANCE, VGPU
from aliquot.metrics.metric import AGENT, CLAIMS, DASHBOARD, DEVICES, HOST, Metric, counter, gauge, histogram, info

OBSERVERS = (AGENT, DEVICES, CLAIMS, HOST)
CHANGERS = (AGENT, DEVICES, CLAIMS, DASHBOARD)

NODE: tuple[Metric, ...] = (
    gauge("aliquot_gpus", "GPUs of the node", OBSERVERS, ("Hostname",)),
    gauge("aliquot_look_success", "1 if the GPUs were read successfully; if not, the page has no metrics about GPUs",
          OBSERVERS, ("Hostname",)),
    gauge("aliquot_last_look_timestamp_seconds", "when the GPUs were last read", OBSERVERS, ("Hostname",)),
    gauge("aliquot_drift", "differences from the desired state, 0 of kind none; absent without a desired state",
          OBSERVERS, ("Hostname", "kind")),
    gauge("aliquot_wish_blocked", "GPUs whose desired state is blocked, by the blocking rule; absent if none is",
          (AGENT, DEVICES, CLAIMS), ("Hostname", "rule")),
    gauge("aliquot_unhealthy_devices", "GPUs and instances that get no new work because of an error (Xid)",
          (AGENT, DEVICES, CLAIMS), ("Hostname",)),
)  # fmt: skip

GPUS: tuple[Metric, ...] = (
    info("aliquot_gpu_info", "identity of the GPU", OBSERVERS,
          (*GPU, "device", "model_name", "driver", "family", "confidence")),
    gauge("aliquot_gpu_lost", "1 if the GPU has fallen off the bus", OBSERVERS, GPU),
    gauge("aliquot_gpu_passthrough", "1 if the whole GPU is passed through to a VM (vfio-pci)", OBSERVERS, GPU),
    gauge("aliquot_gpu_mig_enabled", "1 if MIG mode is on, 0 if off; absent for a GPU without MIG", OBSERVERS, GPU),
    gauge("aliquot_gpu_mig_pending", "1 if MIG mode changes at the next reset", OBSERVERS, GPU),
    gauge("aliquot_gpu_drift", "differences from the GPU's desired state; absent without a desired state",
          OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_slices", "memory slices of a GPU in MIG mode", OBSERVERS, GPU),
    gauge("aliquot_gpu_free_memory_slices", "memory slices that no instance covers", OBSERVERS, GPU),
    gauge("aliquot_gpu_stranded_memory_slices",
          "free memory slices into which no requested profile fits (no profile at all, if none is requested)",
          OBSERVERS, GPU),
    gauge("aliquot_gpu_profile_fits", "how many more instances of a profile fit on the GPU",
          OBSERVERS, (*GPU, "profile", "arrangement")),
    gauge("aliquot_instances", "GPU instances by profile; state is held or idle",
          OBSERVERS, (*GPU, "profile", "state")),
    gauge("aliquot_vgpus", "vGPUs by type; state is held or idle", OBSERVERS, (*GPU, "type", "state")),
    gauge("aliquot_virtual_functions", "enabled virtual functions", OBSERVERS, GPU),
    gauge("aliquot_virtual_functions_limit", "virtual functions that the GPU can have", OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_used_bytes", "memory in use on a GPU outside MIG mode", OBSERVERS, GPU),
    gauge("aliquot_gpu_memory_size_bytes", "memory of a GPU outside MIG mode", OBSERVERS, GPU),
)  # fmt: skip

INSTANCES: tuple[Metric, ...] = (
    info("aliquot_instance_info", "placement of a GPU instance, and its MIG device",
          OBSERVERS, (*INSTANCE, "device", "model_name", "placement", "mig_uuid")),
    gauge("aliquot_instance_held", "1 if a process, pod, VM, job or container holds the instance",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_used_bytes", "memory in use; absent if the driver does not report it",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_size_bytes", "memory of the instance; absent if the driver does not report it",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_memory_peak_bytes", "the most memory observed in use", OBSERVERS, INSTANCE),
    gauge("aliquot_instance_compute_utilization_ratio",
          "share of busy multiprocessors, as measured by GPM; absent if not measured",
          OBSERVERS, INSTANCE),
    gauge("aliquot_instance_idle_since_timestamp_seconds",
          "since when the instance has been idle; absent while it is held, or if it was not observed",
          OBSERVERS, INSTANCE),
    info("aliquot_instance_smaller_profile_info",
          "a smaller profile has enough memory for the observed peak", OBSERVERS, (*INSTANCE, "smaller")),
)  # fmt: skip

VGPUS: tuple[Metric, ...] = (
    gauge("aliquot_vgpu_compute_utilization_ratio",
          "share of the GPU's multiprocessors that the vGPU kept busy; absent if the driver does not report it",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_memory_utilization_ratio",
          "share of time in which the GPU's memory was accessed for the vGPU; absent if not reported",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_encoder_utilization_ratio", "share of the video encoders; absent if not reported",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_decoder_utilization_ratio", "share of the video decoders; absent if not reported",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_memory_used_bytes", "frame buffer that the VM uses; absent if not reported",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_memory_size_bytes", "frame buffer of the vGPU's type; absent if the type is unknown",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_licensed", "1 if the guest has a license, 0 if not; absent until its driver says it",
          OBSERVERS, VGPU),
    gauge("aliquot_vgpu_license_expiry_timestamp_seconds",
          "when the guest's license expires unless it is renewed; absent without one that expires",
          OBSERVERS, VGPU),
)  # fmt: skip

CHANGES: tuple[Metric, ...] = (
    counter("aliquot_changes_total", "applied plans, by outcome", CHANGERS, ("outcome",)),
    histogram("aliquot_change_seconds", "duration of applying a plan", CHANGERS),
    histogram("aliquot_change_step_seconds", "duration of each step, including the wait for holders",
              CHANGERS, ("step",)),
    counter("aliquot_change_failures_total", "changes that failed or were refused, by error code",
            CHANGERS, ("code",)),
    counter("aliquot_change_retries_total", "attempts after a failed one", (AGENT, DEVICES, CLAIMS)),
    counter("aliquot_acts_total", "completed acts, including those of a rollback",
            CHANGERS, ("act", "profile")),
    counter("aliquot_held_refusals_total", "changes refused or interrupted because a device was held", CHANGERS),
    gauge("aliquot_change_started_timestamp_seconds", "start of the running change; 0 while none runs",
          CHANGERS),
)  # fmt: skip

ROWS = (*NODE, *GPUS, *INSTANCES, *VGPUS, *CHANGES)
