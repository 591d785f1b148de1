"""Meaning of each label. Labels of GPUs and instances are spelled as in dcgm-exporter, so that both can be joined."""

from __future__ import annotations

GPU = ("Hostname", "gpu", "UUID", "pci_bus_id")
"""Labels of every metric about a GPU. A GPU that is passed through has no index and no UUID here."""
INSTANCE = (*GPU, "GPU_I_ID", "GPU_I_PROFILE")
VGPU = (*GPU, "type", "vgpu", "function", "vm")
"""Labels of every metric about a vGPU that a VM runs with."""

MEANINGS = {
    "Hostname": "the node's name, as in dcgm-exporter",
    "gpu": "the GPU's index, empty if NVML does not see it; only for display, as it may change at a boot",
    "UUID": "the GPU's UUID (`GPU-...`); join dcgm-exporter's metrics on it and `GPU_I_ID`",
    "pci_bus_id": "the GPU's PCI address in NVML's long form, `00000000:07:00.0`",
    "device": "the GPU's device node, `nvidia0`",
    "model_name": "NVML's product name; dcgm-exporter's `modelName`",
    "GPU_I_ID": "the GPU instance's id: the driver reuses it after a destroy",
    "GPU_I_PROFILE": "the GPU instance's profile, `3g.20gb`",
    "placement": "first memory slice and number of memory slices, `4:4`",
    "mig_uuid": "the MIG device's UUID, empty if the instance has no or several compute instances",
    "driver": "the driver's version",
    "family": "the geometry table's name, empty for a GPU without MIG",
    "confidence": "how certain that table's placements are: `captured` from hardware ... `estimate`",
    "profile": "a MIG profile, or the type of a vGPU; empty for other acts",
    "type": "the type of a vGPU, or of a device in Slurm",
    "vgpu": "the vGPU's UUID in NVML, another one at each start of the VM",
    "function": "the virtual function's PCI address, or the GPU's; empty if NVML does not tell it",
    "vm": "the VM's UUID: `spec.domain.firmware.uuid` in KubeVirt, `virsh domuuid` in libvirt",
    "state": "one of a fixed set, listed in the help of the metric",
    "arrangement": "`now`: beside all present instances; `repacked`: after moving idle instances",
    "smaller": "the smallest profile with enough memory for the instance's peak",
    "kind": "one of a fixed set: kinds of drift (`missing`, `extra`, `mode`, ...), or of objects",
    "step": "a step of a change: `plan`, `lock`, `read`, `destroy`, `create`, `reset`, `verify`, `undo` ...",
    "outcome": "the result: `nothing`, `done`, `reboot`, `undone`, `stopped`, `partial`, `refused`, `failed`",
    "code": "the error's code: `IN_USE`, `MOVED`, `HARDWARE` ...",
    "act": "the kind of act: `create`, `destroy`, `create-vgpu`, `set-mode`, `reset` ...",
    "rule": "the blocking rule: `HELD`, `PLACEMENT`, `UNKNOWN_PROFILE` ...",
    "version": "Aliquot's version",
    "node": "the node's name in the cluster, or in Slurm",
    "verb": "the verb of an API request, or of a change of an object",
    "resource": "a kind of objects; for devices their resource name in Kubernetes",
    "device_class": "a DeviceClass of Kubernetes",
    "status": "the HTTP status of the response, 0 without one",
    "what": "the subject, one of a fixed set",
    "verdict": "`allowed` or `refused`",
    "path": "the path of the webhook",
}
