"""What each label means. Those of GPUs and instances are spelt as dcgm-exporter spells them, so that both join."""

from __future__ import annotations

GPU = ("Hostname", "gpu", "UUID", "pci_bus_id")
"""What every figure about a GPU carries. A GPU that is passed through has no index and no UUID here."""
INSTANCE = (*GPU, "GPU_I_ID", "GPU_I_PROFILE")

MEANINGS = {
    "Hostname": "the node's name, as in dcgm-exporter",
    "gpu": "the GPU's index, empty where NVML does not see it; for showing, as it may change with a boot",
    "UUID": "the GPU's UUID (`GPU-...`); with `GPU_I_ID` what joins with dcgm-exporter's figures",
    "pci_bus_id": "the GPU's PCI address in NVML's long form, `00000000:07:00.0`",
    "device": "the GPU's device node, `nvidia0`",
    "model_name": "the product's name as NVML says it; dcgm-exporter writes it `modelName`",
    "GPU_I_ID": "the GPU instance's id: the driver gives it anew after a destroy",
    "GPU_I_PROFILE": "the GPU instance's profile, `3g.20gb`",
    "placement": "first memory slice and number of memory slices, `4:4`",
    "mig_uuid": "the MIG device's UUID, empty where the instance has no or several compute instances",
    "driver": "the driver's version",
    "family": "the geometry table's name, empty for a GPU without MIG",
    "confidence": "how sure that table's placements are: `captured` from hardware ... `estimate`",
    "profile": "a MIG profile, or the type of a vGPU; empty for acts that are about neither",
    "type": "the type of a vGPU, or of a device in Slurm",
    "state": "one of a fixed few, said in the text of the metric",
    "arrangement": "`now`: beside all that is there; `repacked`: if idle instances moved",
    "smaller": "the smallest profile that the instance's most used memory would have fitted",
    "kind": "one of a fixed few: kinds of drift (`missing`, `extra`, `mode`, ...), or of objects",
    "step": "a step of a change: `plan`, `lock`, `read`, `destroy`, `create`, `reset`, `verify`, `undo` ...",
    "outcome": "how it ended: `nothing`, `done`, `reboot`, `undone`, `stopped`, `partial`, `refused`, `failed`",
    "code": "the error's code: `IN_USE`, `MOVED`, `HARDWARE` ...",
    "act": "what was done: `create`, `destroy`, `create-vgpu`, `set-mode`, `reset` ...",
    "rule": "the rule that stands in the way: `HELD`, `PLACEMENT`, `UNKNOWN_PROFILE` ...",
    "version": "Aliquot's version",
    "node": "the node's name in the cluster, or in Slurm",
    "verb": "what was asked of the API server, or done to an object",
    "resource": "a kind of objects; for devices their resource name in Kubernetes",
    "status": "the HTTP status that was answered, 0 for none",
    "what": "what it is about, one of a fixed few",
    "verdict": "`allowed` or `refused`",
    "path": "the webhook that was asked",
}
