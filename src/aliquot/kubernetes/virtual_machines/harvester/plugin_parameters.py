"""The plugin parameters that the annotation of a VGPUDevice requests."""

from __future__ import annotations

from aliquot.core.model.plugin_parameters import NAMES, as_switches, normal_text
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.rules import parameter_refusal
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PARAMETERS_ANNOTATION


def requested_parameters(device: VGPUDevice, vgpu_type: VgpuType | None = None) -> str | RuleRefusal | None:
    """Return the requested parameters in our order; None if the object requests none.

    Return why they cannot be: a switch that NVIDIA does not document, or, if the type is given, one that needs CUDA in
    the guest for a type without it.
    """
    text = device.metadata.annotations.get(PARAMETERS_ANNOTATION)
    if text is None:
        return None
    normal = normal_text(text)
    if as_switches(normal) is None:
        why = f"{PARAMETERS_ANNOTATION} is {text!r}: it takes NAME=0 or NAME=1, separated by commas, for the names "
        return RuleRefusal("PARAMETER", why + ", ".join(NAMES))
    refused = parameter_refusal(vgpu_type, normal) if vgpu_type is not None else None
    return refused or normal


def correct_command(name: str) -> str:
    """Return the command that takes the request back."""
    return f"kubectl annotate vgpudevice {name} {PARAMETERS_ANNOTATION}-"
