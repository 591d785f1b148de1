"""vGPUs, virtual functions and passthrough as typed: output for users, bad input, and what a boot restores."""

from __future__ import annotations

import errno
import os
import shlex
from typing import Any

import msgspec
import pytest

from aliquot.foundation import state_store
from aliquot.sim import lifecycle as control

from .conftest import Host, Run, Sim
from .test_golden import compare, transcript


def gpu(sim: Sim) -> dict[str, Any]:
    found: dict[str, Any] = sim.node.show()["gpus"][0]
    return found


def kernel_writes(sim: Sim) -> list[dict[str, Any]]:
    return [c for c in sim.node.calls() if c.get("write") and not c.get("hand")]


# -- output for users


def test_vgpus_from_nothing_and_through_a_reboot(host: Host, run: Run) -> None:
    sim = host("a2:mdev")
    made = transcript(
        run,
        "show",
        "vgpu types 0",
        "plan --gpu 0 --vgpu A2-4Q*2,A2-4C",
        "apply --gpu 0 --vgpu A2-4Q*2,A2-4C",
    )
    compare(
        "vgpu",
        *made,
        *transcript(
            run,
            f"sim vm start win10 {gpu(sim)['vgpus'][0]['uuid']}",
            "show",
            "vgpu types 0",
            "plan --gpu 0 --vgpu A2-8Q",
            "plan --gpu 0 --vgpu A2-8Q --policy force",
            "vgpu disable 0",
            "sim reboot",
            "vgpu list",
            "restore --boot",
            "vgpu list",
            "verify --gpu 0 --vgpu A2-4Q*2,A2-4C",
            "vgpu disable 0 --dry-run",
        ),
    )


def test_mixed_sizes_and_instances(host: Host, run: Run) -> None:
    host("l40s:vfio")
    mixed = transcript(
        run,
        "plan --gpu 0 --vgpu L40S-24Q,L40S-8Q,L40S-4Q",
        "apply --gpu 0 --vgpu L40S-24Q,L40S-8Q,L40S-4Q --mixed-size",
        "show",
    )
    host("h100-80gb-hbm3:vfio", "backed")
    backed = transcript(run, "plan --gpu 0 --vgpu H100XM-1-10C*3", "apply --gpu 0 --vgpu H100XM-1-10C*3", "show")
    compare("vgpu-mixed", *mixed, *backed)


def test_a_gpu_in_mixed_size_mode_takes_other_sizes_by_itself(host: Host, run: Run) -> None:
    sim = host("l40s:vfio")
    assert run("apply", "--gpu", "0", "--vgpu", "L40S-24Q,L40S-8Q", "--mixed-size").code == 0
    found = run("apply", "--gpu", "0", "--vgpu", "L40S-16Q:1,L40S-8Q:2")
    assert found.code == 0, found
    assert run("sim", "reboot").code == 0
    assert run("restore", "--boot").code == 0
    assert sorted(v["type_id"] for v in gpu(sim)["vgpus"]) == [1152, 1152, 1154]


def test_passthrough_of_a_gpu_and_of_a_function(host: Host, run: Run) -> None:
    host("a2:mdev*2")
    compare(
        "passthrough",
        *transcript(
            run,
            "passthrough check 0",
            "passthrough enable 0 --dry-run",
            "passthrough enable 0",
            "sim vm start win10 0000:01:00.0",
            "passthrough list",
            "show",
            "passthrough disable 0",
            "vgpu enable 1",
            "passthrough enable 02:00.6",
            "passthrough check 0000:02:00.6",
            "passthrough list",
            "passthrough enable 1",
            "sim vm stop win10",
            "passthrough disable 0",
        ),
    )


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("show", "Inventory"),
        ("vgpu types", "VgpuTypes"),
        ("vgpu list", "Vgpus"),
        ("passthrough list", "PassthroughDevices"),
        ("passthrough check 0", "PassthroughCheck"),
        ("vgpu enable 0 --dry-run", "Plan"),
        ("vgpu enable 0", "Outcome"),
        ("restore --boot", "Outcome"),
    ],
)
def test_documents(host: Host, run: Run, words: str, kind: str) -> None:
    host("a2:mdev")
    found = run(*words.split(), "-o", "json")
    assert found.code in (0, 10), found
    assert (found.document["apiVersion"], found.document["kind"]) == ("aliquot/v1", kind)


# -- bad input

WRONG: dict[str, tuple[str, str, int, tuple[str, ...]]] = {
    "unknown type": ("a2:mdev", "apply --gpu 0 --vgpu A2-5Q", 2, ("A2-5Q", "A2-4Q")),
    "no type at all": ("a2:mdev", "apply --gpu 0 --vgpu ''", 2, ("missing",)),
    "count that is none": ("a2:mdev", "apply --gpu 0 --vgpu A2-4Q*0", 2, ("whole number",)),
    "type of another card": ("a2:mdev", "apply --gpu 0 --vgpu L40S-4Q", 20, ("WRONG_CARD", "L40S-4Q", "NVIDIA L40S")),
    "two sizes": ("a2:mdev", "apply --gpu 0 --vgpu A2-4Q,A2-8Q", 20, ("EQUAL_SIZE", "--mixed-size")),
    "the seventeenth": ("a2:mdev", "apply --gpu 0 --vgpu A2-1Q*17", 20, ("MAX_VGPUS", "16 VFs")),
    "a fifth of four": ("a2:mdev", "apply --gpu 0 --vgpu A2-4Q*5", 20, ("16 VFs but 4 x A2-4Q",)),
    "an eighth instance": ("h100-80gb-hbm3:vfio", "apply --gpu 0 --vgpu H100XM-1-10C*8", 20, ("MAX_VGPUS", "7")),
    "MIG-backed beside time-sliced": (
        "h100-80gb-hbm3:vfio",
        "apply --gpu 0 --vgpu H100XM-1-10C,H100XM-10C",
        20,
        ("MIG_TYPE", "MIG mode"),
    ),
    "no vGPU driver": ("a2", "apply --gpu 0 --vgpu A2-4Q", 20, ("NO_VGPU_DRIVER", "vGPU")),
    "no IOMMU": ("a2:mdev:noiommu", "passthrough enable 0", 20, ("NO_IOMMU", "VT-d")),
    "foreign devices in the group": (
        "a2:mdev:grouped",
        "passthrough enable 0",
        20,
        ("IOMMU_GROUP", "0000:01:00.1", "igb"),
    ),
    "functions of a T4": ("tesla-t4:mdev", "vgpu enable 0", 20, ("NO_FUNCTION", "mediated devices of the GPU itself")),
    "a function while they are off": ("a2:mdev", "passthrough enable 0000:01:00.4", 20, ("aliquot vgpu enable",)),
    "a device that is not there": ("a2:mdev", "passthrough enable 0000:77:00.0", 20, ("0000:77:00.0",)),
    "an unknown GPU": ("a2:mdev", "vgpu types 7", 20, ("NO_SUCH_GPU", "'7'")),
    "an unknown GPU to share": ("a2:mdev", "vgpu enable 7", 20, ("NO_SUCH_GPU", "'7'")),
    "an unknown GPU to pass through": ("a2:mdev", "passthrough enable 7", 20, ("NO_SUCH_GPU", "'7'")),
    "an unknown GPU in a plan": ("a2:mdev", "plan --gpu 7 --vgpu A2-4Q", 20, ("NO_SUCH_GPU", "index 7")),
    "an unknown GPU to look at": ("a2:mdev", "show 7", 20, ("NO_SUCH_GPU", "'7'")),
    "a virtual function for a GPU": (
        "a2:mdev",
        "vgpu types 01:00.5",
        20,
        ("NO_SUCH_GPU", "01:00.5 is virtual function 1 of GPU 0", "aliquot show 0000:01:00.0"),
    ),
    "a checkpoint and a boot": ("a2:mdev", "restore x.json --boot", 2, ("--boot",)),
    "neither": ("a2:mdev", "restore", 2, ("--boot",)),
    "a wait that is none": ("a2:mdev", "restore --boot --wait nan", 2, ("--wait",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_reported_and_changes_nothing(host: Host, run: Run, name: str) -> None:
    template, words, code, answer = WRONG[name]
    sim = host(template)
    before = gpu(sim)
    found = run(*shlex.split(words))
    assert found.code == code, found
    for word in answer:
        assert word in found.err + found.out, (word, found)
    assert "Traceback" not in found.err
    assert gpu(sim) == before
    assert kernel_writes(sim) == []


def test_vgpus_on_a_gpu_that_a_machine_has_whole(host: Host, run: Run) -> None:
    sim = host("a2:mdev")
    assert run("passthrough", "enable", "0").code == 0
    assert run("sim", "vm", "start", "win10", "0000:01:00.0").code == 0
    count = len(kernel_writes(sim))
    found = run("apply", "--gpu", "0", "--vgpu", "A2-4Q")
    assert found.code == 20, found
    assert "win10" in found.err
    assert len(kernel_writes(sim)) == count


@pytest.mark.parametrize(("template", "requested"), [("a2:mdev", "A2-4Q"), ("tesla-t4:mdev", "T4-4Q")])
def test_vgpus_take_an_idle_passed_through_gpu_back(host: Host, run: Run, template: str, requested: str) -> None:
    sim = host(template)
    assert run("passthrough", "enable", "0").code == 0
    assert run("apply", "--gpu", "0", "--vgpu", requested).code == 0
    assert (gpu(sim)["driver"], len(gpu(sim)["vgpus"])) == ("nvidia", 1)


def test_a_vgpu_of_a_series_that_the_driver_refuses(host: Host, run: Run) -> None:
    # The graphics driver of an L40S host offers no C types: the command reports the refusal and leaves nothing behind.
    sim = host("l40s:vfio")
    found = run("apply", "--gpu", "0", "--vgpu", "L40S-8Q,L40S-8C")
    assert found.code in (20, 40), found
    assert "1181" in found.err or "L40S-8C" in found.err
    assert (gpu(sim)["vgpus"], gpu(sim)["functions"]) == ([], 0)


def test_functions_that_vanish_in_the_middle(host: Host, run: Run) -> None:
    sim = host("a2:mdev")
    assert run("vgpu", "enable", "0").code == 0
    saved = run("plan", "--gpu", "0", "--vgpu", "A2-4Q*2", "--out", "plan.json")
    assert saved.code == 10
    assert run("sim", "reboot").code == 0
    count = len(kernel_writes(sim))
    found = run("apply", "plan.json")
    assert (found.code, "MOVED" in found.err) == (20, True), found
    assert len(kernel_writes(sim)) == count


@pytest.mark.parametrize(
    ("template", "requested", "path"), [("a2:mdev", "A2-2Q", "/create"), ("l40s:vfio", "L40S-8Q", "current_vgpu_type")]
)
def test_a_write_refused_at_the_fourth_of_five(host: Host, run: Run, template: str, requested: str, path: str) -> None:
    sim = host(template)
    sim.node.inject_fault("fail", call="SysfsWrite", code=errno.EIO, path=path, nth=4, calls=1)
    found = run("apply", "--gpu", "0", "--vgpu", f"{requested}*5")
    assert found.code == 40, found
    assert found.out.startswith("undone: the former state is back")
    assert found.out.count("is gone again") == 3
    assert (gpu(sim)["vgpus"], gpu(sim)["functions"]) == ([], 0)


def test_functions_that_a_machine_uses_stay_on(host: Host, run: Run) -> None:
    sim = host("a2:mdev")
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q").code == 0
    assert run("sim", "vm", "start", "name with blanks", gpu(sim)["vgpus"][0]["uuid"]).code == 0
    for words in (("vgpu", "disable", "0"), ("passthrough", "enable", "0"), ("apply", "--gpu", "0", "--vgpu", "none")):
        found = run(*words)
        assert found.code == 20, found
        assert "name with blanks" in found.err
    assert len(gpu(sim)["vgpus"]) == 1


# -- after a boot


def test_nothing_recorded_is_nothing_to_do(host: Host, run: Run) -> None:
    sim = host("a2:mdev")
    found = run("restore", "--boot")
    assert (found.code, found.out) == (0, "nothing is recorded to restore\n")
    assert kernel_writes(sim) == []


def test_a_boot_restores_only_what_is_recorded(host: Host, run: Run) -> None:
    sim = host("a30*2")
    assert run("apply", "--gpu", "0", "--mig", "2g.12gb,1g.6gb").code == 0
    sim.node.set_mode(1, True)
    sim.node.create(1, "1g.6gb", 0)
    assert run("sim", "reboot").code == 0
    assert run("restore", "--boot").code == 0
    assert run("verify", "--gpu", "0", "--mig", "2g.12gb,1g.6gb").code == 0
    second = sim.node.show()["gpus"][1]
    assert second["instances"] == []
    again = run("restore", "--boot", "-o", "json")
    assert (again.code, again.document["status"], again.document["driver_calls"]) == (0, "nothing", 0)


def test_a_gpu_that_cannot_be_restored_does_not_keep_the_other_from_it(host: Host, run: Run, state: str) -> None:
    # One GPU is gone and another has its slot. The other GPU gets what was requested.
    sim = host("a2:mdev*2")
    assert run("apply", "--gpu", "0-1", "--vgpu", "A2-4Q*2").code == 0
    path = os.path.join(control.folder(state, sim.name), "boot-record.json")
    with open(path, "rb") as file:
        record = msgspec.json.decode(file.read())["content"]
    os.unlink(path)
    path = os.path.join(control.folder(state, sim.name), "wishes.json")  # as an older release left it
    record["gpus"][0]["uuid"] = "GPU-00000000-0000-4000-8000-000000000000"
    record["gpus"][0]["wish"]["pci"] = "0000:55:00.0"
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(record))
    assert run("sim", "reboot").code == 0
    found = run("restore", "--boot", "--wait", "0.2")
    assert found.code == 20, found
    assert "cannot restore 1 of 2 recorded requests" in found.err
    assert "0000:55:00.0" in found.err
    gpus = sim.node.show()["gpus"]
    assert [len(g["vgpus"]) for g in gpus] == [0, 2]


def test_a_damaged_record_is_no_reason_to_guess(
    host: Host, run: Run, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    state_store.unreadable.clear()  # another test in this process uses the same path
    sim = host("a2:mdev")
    path = os.path.join(control.folder(state, sim.name), "boot-record.json")
    with open(path, "w") as file:
        file.write('{"kind": "boot-')
    found = run("restore", "--boot")
    assert (found.code, "STORAGE" in found.err) == (20, True), found
    done = run("apply", "--gpu", "0", "--vgpu", "A2-4Q")
    assert done.code == 0
    assert "cannot be understood" in caplog.text
    assert run("restore", "--boot").code == 0
    with open(f"{path}.unreadable") as file:
        assert file.read() == '{"kind": "boot-'


def test_a_boot_after_a_torn_record_restores_the_one_before(
    host: Host, run: Run, state: str, caplog: pytest.LogCaptureFixture
) -> None:
    state_store.unreadable.clear()  # another test in this process uses the same path
    sim = host("a2:mdev")
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q*2").code == 0
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q*3").code == 0
    path = os.path.join(control.folder(state, sim.name), "boot-record.json")
    with open(path, "r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(b"\xff")
    assert run("sim", "reboot").code == 0
    found = run("restore", "--boot")
    assert (found.code, "cannot be understood" in caplog.text) == (0, True), found
    assert len(sim.node.show()["gpus"][0]["vgpus"]) == 2


def test_another_vgpu_framework_meets_the_same_request(host: Host, run: Run) -> None:
    # A kernel upgrade moves a host from mediated devices to vendor-specific VFIO: the same request holds.
    sim = host("a2:mdev")
    assert run("apply", "--gpu", "0", "--vgpu", "A2-4Q*3").code == 0
    before = {(v["function"], v["type_id"]) for v in gpu(sim)["vgpus"]}
    assert run("sim", "reboot", "--kernel", "vfio").code == 0
    assert run("restore", "--boot").code == 0
    assert gpu(sim)["world"] == "vendor-vfio"
    assert {(v["function"], v["type_id"]) for v in gpu(sim)["vgpus"]} == before
    assert run("verify", "--gpu", "0", "--vgpu", "A2-4Q*3").code == 0


def test_what_a_host_without_the_vgpu_driver_says(host: Host, run: Run) -> None:
    host("a2")
    for words in ("vgpu types 0", "vgpu list", "vgpu enable 0"):
        assert "vgpu-kvm package" in run(*words.split()).err


def test_a_vgpu_type_is_no_profile(host: Host, run: Run) -> None:
    host("a2:mdev")
    got = run("explain", "A2-4Q")
    assert (got.code, "is a vGPU type" in got.err, "next     aliquot vgpu types" in got.err) == (2, True, True)


def test_a_node_whose_gpu_is_passed_through(host: Host, run: Run) -> None:
    host("a2:mdev")
    run("passthrough", "enable", "0")
    assert "verdict: the GPU is passed through to virtual machines" in run("show").out


def test_a_machine_opens_an_mdev_by_its_uuid(host: Host, run: Run) -> None:
    host("a2:mdev")
    run("apply", "--gpu", "0", "--vgpu", "A2-4Q")
    got = run("sim", "vm", "start", "win10", "0000:01:00.4")
    assert got.code == 2
    assert "carries the mdev " in got.err
    assert "by its UUID" in got.err


def test_an_instance_under_many_vgpus_takes_one_line(host: Host, run: Run) -> None:
    host("rtx-pro-6000-blackwell-server-edition:vfio")
    assert run("apply", "--gpu", "0", "--vgpu", "DC-1-2Q:4").code == 0
    shown = run("show").out
    assert "held by 4 vGPUs" in shown
    assert shown.count("DC-1-2Q  0000:") == 4


def test_vgpus_inside_instances_carry_the_letters_of_these(host: Host, run: Run) -> None:
    # Separate letters for vGPUs would be ambiguous: ``b`` would lie on instance ``a``.
    sim = host("rtx-pro-6000-blackwell-server-edition:vfio")
    request = ("--gpu", "0", "--vgpu", "DC-1-8Q:4")
    planned = run("plan", *request).out.splitlines()
    assert [line.split()[2] for line in planned if ", instance at" in line] == ["a", "a", "a", "b"]
    assert run("apply", *request).code == 0
    shown = [line.split() for line in run("show").out.splitlines()]
    instances = {row[5]: row[0] for row in shown if "id" in row}
    assert instances == {"3": "a", "4": "b"}
    vgpus = [row for row in shown if "instance" in row]
    assert [row[0] for row in vgpus] == [instances[row[row.index("instance") + 1]] for row in vgpus]
    gone = run("plan", "--gpu", "0", "--vgpu", "none").out.splitlines()
    assert [line.split()[2] for line in gone if "DC-1-8Q on" in line] == ["a", "a", "a", "b"]
    assert run("sim", "vm", "start", "win10", gpu(sim)["vgpus"][0]["function"]).code == 0
    assert "DC-1-8Q:4  (1 held)" in run("show").out


def test_nothing_to_do_speaks_of_what_was_asked(host: Host, run: Run) -> None:
    host("a2:mdev")
    run("apply", "--gpu", "0", "--vgpu", "A2-4Q*2")
    assert "nothing to do: 2 vGPUs are as requested" in run("apply", "--gpu", "0", "--vgpu", "A2-4Q*2").out
    assert "nothing to do: the virtual functions are as requested" in run("vgpu", "enable", "0").out


def test_an_export_for_mig_parted_says_what_it_leaves_out(host: Host, run: Run) -> None:
    host("a2:mdev")
    assert run("export").err == ""
    run("apply", "--gpu", "0", "--vgpu", "A2-4Q")
    assert "left out: see --native" in run("export").err
    assert run("export", "--native").err == ""


@pytest.mark.parametrize("template", ["a2:mdev", "l40s:vfio"])
def test_plugin_parameters_are_applied_verified_and_restored_after_a_reboot(
    host: Host, run: Run, template: str
) -> None:
    sim = host(template)
    name = "A2-4Q" if template == "a2:mdev" else "L40S-8Q"
    entry = f"{{gpus: all, vgpu: {{{name}: 2}}, vgpu-parameters: {{enable_uvm: true}}}}"
    with open("x.yaml", "w") as file:
        file.write(f"version: aliquot/v1\nconfigs:\n  x: [{entry}]\n")
    assert run("apply", "--gpu", "0", "--vgpu", f"{name}*2").code == 0
    found = run("verify", "-f", "x.yaml")
    assert (found.code, "has plugin parameters none, but should have enable_uvm=1" in found.out) == (30, True), found
    sim.node._control("fault", kind="fail", call="SysfsWrite", code=5, path="vgpu_params", calls=1)
    before = gpu(sim)["vgpus"]
    assert run("apply", "-f", "x.yaml").code != 0
    assert gpu(sim)["vgpus"] == before
    assert run("apply", "-f", "x.yaml").code == 0
    assert [v["params"] for v in gpu(sim)["vgpus"]] == ["enable_uvm=1"] * 2
    assert "enable_uvm=1" in run("vgpu", "list").out
    assert run("sim", "reboot").code == 0
    assert run("restore", "--boot").code == 0
    assert [v["params"] for v in gpu(sim)["vgpus"]] == ["enable_uvm=1"] * 2
    assert run("verify", "-f", "x.yaml").code == 0


@pytest.mark.parametrize("backend", ["nvml", "smi"])
def test_the_scheduler_of_a_file_is_verified_undone_and_restored_by_a_boot(
    host: Host, run: Run, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend == "smi":
        monkeypatch.setenv("ALIQUOT_BACKEND", "smi")
    sim = host("l40s:vfio")
    with open("x.yaml", "w") as file:
        file.write(
            "version: aliquot/v1\nconfigs:\n  x: [{gpus: all, vgpu: {L40S-8Q: 2}, scheduler: 'equal-share,2ms'}]\n"
        )
    assert run("apply", "--gpu", "0", "--vgpu", "L40S-8Q*2").code == 0
    before = gpu(sim)["vgpus"]
    found = run("verify", "-f", "x.yaml")
    assert (found.code, "its scheduler is best-effort, but should be equal-share,2ms" in found.out) == (30, True), found
    sim.node._control("fault", kind="fail", call="DeviceSetVgpuSchedulerState", code=3, calls=1)
    assert run("apply", "-f", "x.yaml").code != 0
    assert gpu(sim)["vgpus"] == before
    assert run("verify", "--gpu", "0", "--vgpu", "L40S-8Q*2").code == 0
    assert run("apply", "-f", "x.yaml").code == 0
    assert gpu(sim)["vgpus"] == before, "created again as they were"
    assert run("apply", "-f", "x.yaml").out.startswith("nothing to do"), "the record knows the time slice"
    assert "scheduler equal-share,2ms" in run("vgpu", "list").out
    listed = msgspec.json.decode(run("vgpu", "list", "-o", "json").out)
    assert "equal-share,2ms" in str(listed)
    assert "scheduler: 'equal-share,2ms'" in run("export", "--native").out
    assert run("sim", "reboot").code == 0
    assert run("verify", "-f", "x.yaml").code == 30
    assert run("restore", "--boot").code == 0
    assert run("verify", "-f", "x.yaml").code == 0


def test_mixed_size_mode_of_gpu_instances_is_shown(host: Host, run: Run) -> None:
    host("rtx-pro-6000-blackwell-server-edition:vfio")
    assert run("apply", "--gpu", "0", "--vgpu", "DC-1-12Q,DC-1-8Q", "--mixed-size").code == 0
    assert "mixed-size mode" in run("show").out
    assert "mixed-size mode" in run("vgpu", "list").out
    assert msgspec.json.decode(run("vgpu", "list", "-o", "json").out)["gpus"][0]["mixed"] is True


def test_the_scheduler_of_gpu_instances_is_shown_undone_and_restored_by_a_boot(host: Host, run: Run) -> None:
    sim = host("rtx-pro-6000-blackwell-server-edition:vfio")
    with open("x.yaml", "w") as file:
        file.write(
            "version: aliquot/v1\nconfigs:\n  x: [{gpus: all, vgpu: {DC-1-12Q: 4}, scheduler: 'equal-share,2ms'}]\n"
        )
    assert run("apply", "--gpu", "0", "--vgpu", "DC-1-12Q*2").code == 0
    before = gpu(sim)["vgpus"]
    sim.node._control("fault", kind="fail", call="GpuInstanceSetVgpuSchedulerState", code=3, calls=1)
    assert run("apply", "-f", "x.yaml").code != 0
    assert gpu(sim)["vgpus"] == before
    assert run("verify", "--gpu", "0", "--vgpu", "DC-1-12Q*2").code == 0
    assert run("apply", "-f", "x.yaml").code == 0
    assert [v for v in gpu(sim)["vgpus"] if v in before] == before, "created again as they were"
    assert run("apply", "-f", "x.yaml").out.startswith("nothing to do"), "the record knows the time slice"
    assert "scheduler equal-share,2ms" in run("vgpu", "list").out
    assert "scheduler: 'equal-share,2ms'" in run("export", "--native").out
    instances = msgspec.json.decode(run("show", "-o", "json").out)["gpus"][0]["instances"]
    assert [i["scheduler"] for i in instances] == ["equal-share,2ms"] * 2
    sim.node._control("vm-start", name="win10", devices=[gpu(sim)["vgpus"][0]["function"]])
    held = run("plan", "--gpu", "0", "--vgpu", "none")
    assert (held.code, "win10" in held.out + held.err) == (20, True), held
    sim.node._control("vm-stop", name="win10")
    assert run("sim", "reboot").code == 0
    assert run("verify", "-f", "x.yaml").code == 30
    assert run("restore", "--boot").code == 0
    assert run("verify", "-f", "x.yaml").code == 0
