"""Errors of ``aliquot slurm check`` are refused or interpreted differently by the real slurmd and slurmctld.

They interpret files without findings as intended.
"""

from __future__ import annotations

import json
import time
from typing import NamedTuple

import msgspec
import pytest

from aliquot.core.model.inventory import Inventory

from .bed import Bed, until

CAPS = "/dev/nvidia-caps/nvidia-cap"
APART = ("OPEN_DEVICES", "SHARED_BY_NODES", "NO_TASK_PROLOG")
"""Rules that apply to every cluster of these tests: jobs are not fenced and do not know which devices they have."""
CUT = [f"Name=gpu Type=1g.5gb MultipleFiles=/dev/nvidia0,{CAPS}{m},{CAPS}{m + 1}" for m in (66, 75, 84)]
WHOLE = "Name=gpu Type=a100 File=/dev/nvidia0"
PARTITION = "PartitionName=all Nodes=ALL Default=YES"


class Case(NamedTuple):
    """A node's ``Gres=`` and lines, and the rules that must report it."""

    gres: str
    lines: tuple[str, ...]
    rules: frozenset[str] = frozenset()


def case(gres: str, *lines: str, rules: str = "") -> Case:
    return Case(gres, lines, frozenset(rules.split()))


REFUSED = {
    "one device in two lines": case("gpu:a100:2", WHOLE, WHOLE, rules="SAME_DEVICE"),
    "a type for some GPUs": case("gpu:1,gpu:a100:1", WHOLE, rules="MIXED_TYPES"),
    "a type on some lines": case("gpu:2", WHOLE, "Name=gpu File=/dev/nvidia1", rules="MIXED_TYPES"),
    "files on some lines": case("gpu:a100:2", WHOLE, "Name=gpu Type=a100", rules="MIXED_FILES"),
    "a count that is not the files'": case("gpu:2", "Name=gpu Count=2 File=/dev/nvidia0", rules="BAD_COUNT"),
    "a count that is none": case("gpu:1", "Name=gpu Count=one File=/dev/nvidia0", rules="BAD_COUNT"),
    "several files, one": case("gpu:1", "Name=gpu MultipleFiles=/dev/nvidia0", rules="ONE_FILE"),
    "files in two ways": case(
        "gpu:1", "Name=gpu File=/dev/nvidia0 MultipleFiles=/dev/nvidia0,/dev/nvidia1", rules="TWO_FILES"
    ),
    "an unknown key": case("gpu:1", "Name=gpu Fil=/dev/nvidia0", rules="UNREADABLE"),
    "two statements on a line": case("gpu:1", "AutoDetect=off Name=gpu File=/dev/nvidia0", rules="UNREADABLE"),
    "an empty value": case("gpu:1", "Name=gpu File=", rules="UNREADABLE"),
    "a word that is not a pair": case("gpu:1", "Name=gpu File=/dev/nvidia0 drained", rules="UNREADABLE"),
    "an Include that is indented": case("gpu:1", " Include more.conf", rules="UNREADABLE"),
    "two detections": case(
        "gpu:1", "NodeName=n1 AutoDetect=off", "NodeName=n1 AutoDetect=nvml", rules="AUTODETECT_TWICE"
    ),
    "flags that exclude each other": case(
        "gpu:1", "Name=gpu File=/dev/nvidia0 Flags=no_gpu_env,nvidia_gpu_env", rules="FLAGS_EXCLUDE"
    ),
    "other flags on other lines": case(
        "gpu:2",
        "Name=gpu File=/dev/nvidia0 Flags=nvidia_gpu_env",
        "Name=gpu File=/dev/nvidia1 Flags=no_gpu_env",
        rules="FLAGS_DIFFER",
    ),
}
INVALID = {
    "fewer than configured": case("gpu:1g.5gb:7", CUT[0], rules="COUNT_MISMATCH"),
    "fewer, without types": case("gpu:3", CUT[0], rules="COUNT_MISMATCH"),
    "whole and in slices": case("gpu:a100:1,gpu:1g.5gb:2", *CUT[:2], rules="COUNTED_TWICE COUNT_MISMATCH"),
    "the seed document": case(
        "gpu:a100:1,gpu:1g.5gb:7",
        *(f"Name=gpu Type=1g.5gb File={CAPS}{n}" for n in (1, 2)),
        rules="COUNTED_TWICE COUNT_MISMATCH ADMIN_CAPABILITY LONE_CAPABILITY",
    ),
    "a type that no line has": case("gpu:a100:1", *CUT[:1], rules="COUNT_MISMATCH"),
    "a detection that is none": case("gpu:1", "AutoDetect=fast", rules="AUTODETECT_UNKNOWN"),
}
OTHERWISE = {
    "a letter in the count": (case("gpu:a100:x2", WHOLE, rules="BAD_COUNT"), "gpu:a100:1"),
    "a profile without a count": (case("gpu:1g.5gb", CUT[0], rules="BAD_COUNT"), "gpu:1g.5gb"),
    "a GPU whole, too": (case("gpu:a100:1,gpu:1g.5gb:1", WHOLE, CUT[0], rules="COUNTED_TWICE"), None),
    "a slice twice": (case("gpu:1g.5gb:2", CUT[0], CUT[0], rules="SAME_DEVICE"), None),
    "lines that are not counted": (case("gpu:1g.5gb:1", *CUT, rules="EXTRA_DEVICES"), None),
}
"""With the value that Slurm shows; None: the value as written."""
FINE = {
    "slices": case("gpu:1g.5gb:3", *CUT),
    "no types": case("gpu:3", *CUT),
    "a whole GPU": case("gpu:a100:1", WHOLE),
    "a list of files": case("gpu:a100:2", "NAME=gpu type=a100 FILE=/dev/nvidia[0-1]"),
    "a line that goes on": case("gpu:a100:1", 'Name=gpu Type="a100" \\', "  File=/dev/nvidia0  # the first"),
    "suffixes and no count": case("gpu:a100", WHOLE),
}


def reported(bed: Bed, *words: str) -> list[tuple[str, str, list[str]]]:
    """Return severity, rule and nodes of each finding, except those of every bed (no fences, many nodes on a host)."""
    done = bed.aliquot("slurm", "check", "--conf-dir", str(bed.etc), "--files-only", "-o", "json", *words)
    assert done.code in (0, 30), done
    found = json.loads(done.out)["findings"]
    return [(f["severity"], f["rule"], f["nodes"]) for f in found if f["rule"] not in APART]


@pytest.fixture
def devices(bed: Bed) -> Bed:
    bed.gpu_devices(0, 1, 2, 66, 67, 75, 76, 84, 85)
    bed.gpu_devices(1)
    return bed


def test_what_check_calls_an_error_slurmd_refuses(devices: Bed) -> None:
    for name, each in REFUSED.items():
        devices.conf(f"{devices.node('n1', f'Gres={each.gres}')}\n{PARTITION}", gres="\n".join(each.lines) + "\n")
        assert each.rules <= {rule for severity, rule, _ in reported(devices) if severity == "error"}, name
        done = devices.run("slurmd", "-G", "-N", "n1")
        assert done.code, (name, done)


def cluster(bed: Bed, cases: dict[str, Case]) -> dict[str, str]:
    """Start a cluster with a node for each case. Returns the node names by case."""
    names = {name: f"n{n}" for n, name in enumerate(cases, start=1)}
    nodes = [bed.node(names[name], f"RealMemory=1000 Gres={each.gres}") for name, each in cases.items()]
    gres = "".join(_of(names[name], each.lines) for name, each in cases.items())
    bed.conf("\n".join([*nodes, PARTITION]), gres=gres)
    bed.controller()
    for node in names.values():
        bed.start(node, "slurmd", "-D", "-N", node)
    until(lambda: all("INVALID" in bed.state(n) or bed.registered(n) for n in names.values()), "not all registered")
    return names


def _of(node: str, lines: tuple[str, ...]) -> str:
    starts = [not before.endswith("\\") for before in ("", *lines)]
    return "".join(
        f"NodeName={node} {line}\n" if start else f"{line}\n" for line, start in zip(lines, starts, strict=False)
    )


def test_what_check_calls_an_error_makes_the_node_invalid(devices: Bed) -> None:
    names = cluster(devices, INVALID)
    found = reported(devices)
    for name, each in INVALID.items():
        node = names[name]
        assert each.rules <= {rule for s, rule, n in found if s == "error" and node in n} | _unnamed(found), name
        assert "INVALID_REG" in devices.state(node), name
    live = {node for _, rule, nodes in reported(devices, "--live") if rule == "NODE_INVALID" for node in nodes}
    assert live == set(names.values())


def _unnamed(found: list[tuple[str, str, list[str]]]) -> set[str]:
    """Return the rules about a line, whichever nodes read it."""
    return {rule for severity, rule, nodes in found if severity == "error" and not nodes}


def test_slurm_takes_otherwise_what_check_finds_and_takes_the_rest_as_intended(devices: Bed) -> None:
    names = cluster(devices, {name: each for name, (each, _) in OTHERWISE.items()} | FINE)
    found = reported(devices)
    for name, (each, shown) in OTHERWISE.items():
        about = {rule for _, rule, nodes in found if names[name] in nodes or not nodes}
        assert each.rules <= about, name
        assert devices.field(names[name], "Gres") == (shown or each.gres), name
    for name, each in FINE.items():
        assert not [f for f in found if names[name] in f[2]], name
        assert "IDLE" in devices.state(names[name]), name
        count = each.gres if each.gres[-1].isdigit() and "100" not in each.gres[-3:] else f"{each.gres}:1"
        assert devices.field(names[name], "Gres") == count, name


def test_a_type_in_other_letters_is_another_type_from_23_11_on(devices: Bed) -> None:
    devices.conf(f"{devices.node('n1', 'RealMemory=1000 Gres=gpu:A100:1')}\n{PARTITION}", gres=f"{WHOLE}\n")
    old = devices.release.name == "22.05"
    found = reported(devices, "--slurm-version", devices.release.name)
    assert found == [("warning" if old else "error", "TYPE_CASE", ["n1"])]
    devices.controller()
    devices.start("n1", "slurmd", "-D", "-N", "n1")
    until(lambda: ("IDLE" if old else "INVALID_REG") in devices.state("n1"), lambda: devices.state("n1"))


def test_gpus_without_gres_types_are_left_out(devices: Bed) -> None:
    devices.conf(f"{devices.node('n1', 'Gres=gpu:a100:1')}\n{PARTITION}", gres=f"{WHOLE}\n")
    slurm = devices.etc / "slurm.conf"
    slurm.write_text(slurm.read_text().replace("GresTypes=gpu\n", ""))
    assert [(s, rule) for s, rule, _ in reported(devices)] == [("error", "NO_GRES_TYPES")]
    devices.controller()
    devices.slurmd("n1")
    assert devices.field("n1", "Gres") == "(null)"


def test_a_flag_without_one_for_the_environment_removes_the_variable(devices: Bed) -> None:
    gres = f"{WHOLE} Flags=env_uuid\n"
    old = devices.release.name == "22.05"
    devices.conf(f"{devices.node('n1', 'RealMemory=1000 Gres=gpu:a100:1')}\n{PARTITION}", gres=gres)
    severity = "warning" if old else "error"
    assert (severity, "UNKNOWN_FLAG", []) in reported(devices, "--slurm-version", devices.release.name)
    devices.controller()
    devices.slurmd("n1")
    assert ("CUDA_VISIBLE_DEVICES" in devices.ok("srun", "--gres=gpu:1", "env")) == old


def test_slurmd_alone_restarted_and_a_drain_without_a_reason_are_found(devices: Bed) -> None:
    devices.conf(f"{devices.node('n1', 'RealMemory=1000 Gres=gpu:1g.5gb:1')}\n{PARTITION}", gres=f"{CUT[0]}\n")
    devices.controller()
    devices.slurmd("n1")
    assert reported(devices, "--live") == []
    refused = devices.run("scontrol", "update", "nodename=n1", "state=drain")
    assert refused.code
    assert "reason" in refused.err
    slurm = devices.etc / "slurm.conf"
    slurm.write_text(slurm.read_text().replace("1g.5gb:1", "1g.5gb:2"))
    (devices.etc / "gres.conf").write_text("\n".join(CUT[:2]) + "\n")
    assert {rule for _, rule, _ in reported(devices, "--live")} >= {"STALE_CONTROLLER"}
    devices.stop("n1")
    devices.slurmd("n1")
    assert devices.field("n1", "Gres") == "gpu:1g.5gb:1"
    assert ("error", "STALE_CONTROLLER", ["n1"]) in reported(devices, "--live")
    slurm.write_text(slurm.read_text().replace("1g.5gb:2", "1g.5gb:2 State=DRAIN"))
    devices.stop("slurmctld")
    (devices.folder / "state" / "node_state").unlink()
    devices.controller()
    until(lambda: "1g.5gb:2" in devices.field("n1", "Gres"), "slurmctld never read the file")
    assert ("warning", "NO_REASON", ["n1"]) in reported(devices, "--live")


def test_what_render_writes_is_right_to_check_and_to_slurm(bed: Bed) -> None:
    # The simulated node has a partitioned GPU and a whole one. Later its layout changes without the files.
    env = {"ALIQUOT_STATE_DIR": str(bed.folder / "sim")}

    def aliquot(*words: str) -> str:
        done = bed.aliquot(*words, env=env)
        assert done.code == 0, (words, done)
        return done.out

    def check(*words: str) -> list[str]:
        where = ("--conf-dir", str(bed.etc), "--sim", "n1", "--node-name", "n1", "--dev-root", "/")
        done = bed.aliquot("slurm", "check", *where, "-o", "json", *words, env=env)
        assert done.code in (0, 30), done
        found = json.loads(done.out)
        assert found["compared"] == ["n1"]
        return [f"{f['severity']} {f['rule']}" for f in found["findings"] if f["rule"] not in APART]

    aliquot("sim", "start", "a100-sxm4-40gb*2", "--name", "n1")
    try:
        aliquot("apply", "--gpu", "0", "--mig", "3g.20gb,1g.5gb*2", "--sim", "n1")
        found = json.loads(aliquot("show", "--sim", "n1", "-o", "json"))
        bed.devices_of(msgspec.convert(found, Inventory))
        render = (
            "slurm",
            "render",
            "--sim",
            "n1",
            "--node-name",
            "n1",
            "--cores",
            "none",
            "--check",
            "never",
            "--part",
        )
        gres, line = (aliquot(*render, part) for part in ("gres", "nodes"))
        value = next(w for w in line.split() if w.startswith("Gres="))
        node = bed.node("n1", f"RealMemory=1000 {value}")
        bed.conf(f"{node}\n{PARTITION}", gres=gres, more="GresTypes=gpu,nic", cgroup="ConstrainDevices=yes\n")
        assert check() == []
        bed.controller()
        bed.slurmd("n1")
        assert bed.field("n1", "Gres").partition(",nic")[0] == value.removeprefix("Gres=").partition(",nic")[0]
        assert check("--live") == []
        aliquot("apply", "--gpu", "0", "--mig", "7g.40gb", "--sim", "n1")
        assert set(check()) == {"error NO_SUCH_INSTANCE", "warning NOT_OFFERED"}
    finally:
        aliquot("sim", "stop", "n1")


HELPERS = {
    "a name outside the alphabet": ("Feature=1g.5gb Helper=/bin/true\n", "FEATURE_NAME"),
    "a key that is none": ("Feature=a Helper=/bin/true Node=n1\n", "UNREADABLE"),
    "lines of nodes before 23.02": ("NodeName=n1 Feature=a Helper=/bin/true\n", "HELPERS_FORM"),
    "several features before 23.02": ("Feature=a,b Helper=/bin/true\n", "HELPERS_FORM"),
}


def test_helpers_conf_that_check_calls_an_error_slurmctld_refuses(devices: Bed) -> None:
    old = devices.release.name == "22.05"
    plugin = "NodeFeaturesPlugins=node_features/helpers"
    for n, (name, (text, rule)) in enumerate(HELPERS.items()):
        devices.conf(f"{devices.node('n1')}\n{PARTITION}", more=plugin)
        (devices.etc / "helpers.conf").write_text(text + "ExecTime=60\n")
        found = [(s, r) for s, r, _ in reported(devices, "--slurm-version", devices.release.name)]
        right = rule == "HELPERS_FORM" and not old
        assert (("error", rule) in found) != right, (name, found)
        done = devices.run("sh", "-c", f"timeout 3 slurmctld -D >{devices.logs}/{n}.log 2>&1")
        assert (done.code != 124) != right, (name, devices.log(str(n))[-600:])


def test_a_changeable_feature_that_is_static_too_makes_the_node_invalid(devices: Bed) -> None:
    old = devices.release.name == "22.05"
    line = "Feature=mig_a Helper=/bin/true\n" * old + "NodeName=n1 Feature=mig_a,mig_b Helper=/bin/false\n" * (not old)
    node = devices.node("n1", "RealMemory=1000 Feature=mig_a")
    devices.conf(f"{node}\n{PARTITION}", more="NodeFeaturesPlugins=node_features/helpers")
    helper = devices.folder / "helper"
    helper.write_text("#!/bin/sh\n[ $# = 0 ] && echo mig_b\nexit 0\n")
    helper.chmod(0o755)
    text = line.replace("/bin/true", str(helper)).replace("/bin/false", str(helper))
    (devices.etc / "helpers.conf").write_text(text + "ExecTime=60\n")
    severity = "warning" if old else "error"
    assert reported(devices, "--slurm-version", devices.release.name) == [(severity, "FEATURE_STATIC", [])]
    devices.controller()
    devices.start("n1", "slurmd", "-D", "-N", "n1")
    until(lambda: ("IDLE" if old else "INVALID_REG") in devices.state("n1"), lambda: devices.state("n1"))


def test_files_are_read_again_as_the_release_does_it(devices: Bed) -> None:
    # The commands that check prints remove its findings. An unavailable slurmctld is reported soon.
    devices.conf(f"{devices.node('n1', 'RealMemory=1000 Gres=gpu:1g.5gb:1')}\n{PARTITION}", gres=f"{CUT[0]}\n")
    devices.controller()
    devices.slurmd("n1")
    slurm = devices.etc / "slurm.conf"
    time.sleep(1.1)  # file times and slurmd's start are compared in seconds
    slurm.write_text(slurm.read_text().replace("1g.5gb:1", "1g.5gb:2"))
    (devices.etc / "gres.conf").write_text("\n".join(CUT[:2]) + "\n")
    stale = [("error", "STALE_CONTROLLER", ["n1"]), ("warning", "STALE_SLURMD", ["n1"])]
    assert reported(devices, "--live", "--slurm-version", devices.release.name) == stale
    if devices.release.name == "22.05":
        devices.stop("n1")
        devices.stop("slurmctld")
        devices.controller()
        devices.slurmd("n1")
    else:
        devices.ok("scontrol", "reconfigure")
    until(lambda: reported(devices, "--live") == [], lambda: str(reported(devices, "--live")))
    assert devices.field("n1", "Gres") == "gpu:1g.5gb:2"
    devices.stop("slurmctld")
    begin = time.monotonic()
    done = devices.aliquot("slurm", "check", "--conf-dir", str(devices.etc), "--files-only", "--live")
    assert done.code == 20
    assert time.monotonic() - begin < 15
    assert "Traceback" not in done.err


def test_types_that_slurm_takes_for_each_other_are_found(devices: Bed) -> None:
    # The 94 GB and the 96 GB form of a product have types whose characters have the same sum.
    held, asked = "h100_4g.47gb", "h100_3g.48gb"
    nodes = [devices.node("n1", f"RealMemory=1000 Gres=gpu:{held}:1"), devices.node("n2", f"Gres=gpu:{asked}:1")]
    lines = (f"Name=gpu Type={each} File=/dev/nvidia{n}" for n, each in enumerate((held, asked)))
    gres = "".join(f"NodeName=n{n} {line}\n" for n, line in enumerate(lines, start=1))
    devices.conf("\n".join([*nodes, PARTITION]), gres=gres)
    assert ("error", "SAME_TYPE_ID", []) in reported(devices)
    devices.controller()
    devices.start("n1", "slurmd", "-D", "-N", "n1")
    until(lambda: devices.registered("n1"), "n1 does not register")
    other = devices.run("srun", "-w", "n1", "--gres=gpu:h100_2g.24gb:1", "true")
    assert other.code, "an unknown type is refused"
    done = devices.run("srun", "-w", "n1", f"--gres=gpu:{asked}:1", "true")
    assert done.code == 0, done
