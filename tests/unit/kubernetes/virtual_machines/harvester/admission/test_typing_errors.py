"""Typing errors of administrators in Harvester's objects: refusals say what was meant, and one next command."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from support.admissions import GPU, environment, function, gpu, merged, mig, request, vgpu

TYPES = {"NVIDIA A2-4Q": "nvidia-746", "NVIDIA A2-4C": "nvidia-754", "NVIDIA A2-16Q": "nvidia-748"}
A100 = function(device="20b0", resource="nvidia.com/A100")


@pytest.mark.parametrize(
    ("typed", "intended"),
    [
        ("A2-4Q", "NVIDIA A2-4Q"),
        ("NVIDIA_A2-4Q", "NVIDIA A2-4Q"),
        ("nvidia a2-16q", "NVIDIA A2-16Q"),
        ("nvidia.com/NVIDIA_A2-4C", "NVIDIA A2-4C"),
        ("nvidia-746", "NVIDIA A2-4Q"),
    ],
    ids=["short", "underscores", "case", "resource", "number"],
)
def test_a_type_in_another_spelling_is_recognized(typed: str, intended: str) -> None:
    old = vgpu("0000:08:00.4", types=TYPES)
    new = merged(old, spec={"enabled": True, "vGPUTypeName": typed})
    refused = judge(request("vgpudevices", old, new), environment(gpus=[gpu()])).message
    hint = f"(did you mean {intended}?): available are"
    assert refused.startswith(f"{typed} is not a valid profile for n1-000008004 now {hint}")


@pytest.mark.parametrize("typed", ["NVIDIA A2-8Q", "NVIDIA L40S-4Q", "x"])
def test_another_type_is_no_spelling_of_an_available_one(typed: str) -> None:
    old = vgpu("0000:08:00.4", types=TYPES)
    new = merged(old, spec={"enabled": True, "vGPUTypeName": typed})
    assert "did you mean" not in judge(request("vgpudevices", old, new), environment(gpus=[gpu()])).message


def test_a_wrong_profile_id_is_refused_once_with_the_ids_that_there_are() -> None:
    old = mig({}, enabled=False)
    rows = [{"id": 77, "name": "MIG 1g.5gb", "requested": 1}]
    refused = judge(
        request("migconfigurations", old, merged(old, spec={"enabled": True, "profileSpec": rows})),
        environment(functions=[A100]),
    )
    (reason,) = refused.reasons
    assert "this GPU has no profile MIG 1g.5gb (id 77): it has MIG 1g.5gb (id 19), MIG 1g.5gb+me (id 20)" in reason


def test_a_configuration_in_use_is_deleted_after_its_vgpus() -> None:
    """The command of the refusal must not be refused itself."""
    old = mig({19: 1}, enabled=True, state=names.SYNCED)
    child = vgpu("0000:08:00.4", "GRID A100-1-5C", True)
    found = judge(request("migconfigurations", old, None), environment(gpus=[gpu()], vgpus=[child]))
    (reason,) = found.reasons
    assert reason.startswith(f"cannot delete {GPU} while vGPU n1-000008004 is enabled")


@pytest.mark.parametrize(("requested", "warned"), [({}, True), ({19: 1}, False)])
def test_a_layout_without_any_instance_is_warned_about(requested: dict[int, int], warned: bool) -> None:
    """It would read "synced", and no vGPU would get a type."""
    old = mig({}, enabled=False)
    new = merged(old, spec=mig(requested, enabled=True)["spec"])
    found = judge(request("migconfigurations", old, new), environment(functions=[A100]))
    assert found.reasons == ()
    assert found.warnings == (
        (
            f"{GPU} requests no GPU instance, so its vGPUs have no types: set requested in profileSpec"
            f" | next: kubectl edit migconfiguration {GPU}",
        )
        if warned
        else ()
    )


def test_a_merge_patch_that_drops_profiles_is_warned_about_once() -> None:
    """A merge patch replaces the whole list, and Harvester's page then offers no other profile."""
    old = mig({}, enabled=False)
    short = merged(old, spec={"profileSpec": [{"id": 19, "name": "MIG 1g.5gb", "requested": 2}]})
    others = ", ".join(row["name"] for row in old["spec"]["profileSpec"][1:])
    found = judge(request("migconfigurations", old, short), environment(functions=[A100]))
    assert (found.reasons, found.warnings) == (
        (),
        (
            f"profileSpec of {GPU} has no row for {others}: Harvester's page cannot request them; "
            f"add the rows with requested 0 | next: kubectl edit migconfiguration {GPU}",
        ),
    )
    assert judge(request("migconfigurations", short, short), environment(functions=[A100])).warnings == ()


@pytest.mark.parametrize("enabled", [True, False])
def test_a_configuration_that_the_agent_deletes_is_warned_about(enabled: bool) -> None:
    """It vanished within seconds, and only the agent's log had it."""
    found = judge(
        request("migconfigurations", None, mig({19: 1}, enabled=True)),
        environment(gpus=[gpu(enabled)], functions=[A100]),
    )
    assert found.reasons == ()
    deleted = [each for each in found.warnings if f"the agent deletes {GPU}" in each]
    assert bool(deleted) is not enabled
    step = f"""| next: kubectl patch sriovgpudevice {GPU} --type merge -p '{{"spec":{{"enabled":true}}}}'"""
    assert all(each.endswith(step) for each in deleted)
