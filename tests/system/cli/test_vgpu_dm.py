"""nvidia-vgpu-dm's command line: its flags, variables, success lines and exit codes, on every vGPU framework."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from .conftest import Host, Run, Sim

CONFIG = """\
version: v1
vgpu-configs:
  two: [{{devices: all, vgpu-devices: {{{one}: 2}}}}]
  other: [{{devices: all, vgpu-devices: {{{other}: 1}}}}]
  none: [{{devices: all, vgpu-devices: {{}}}}]
  impossible: [{{devices: all, vgpu-devices: {{{one}: 33}}}}]
  elsewhere: [{{devices: all, device-filter: "0x233010DE", vgpu-devices: {{H100XM-40C: 1}}}}]
"""
APPLIED = "Selected vGPU device configuration successfully applied\n"
CURRENT = "Selected vGPU device configuration is currently applied\n"
FRAMEWORKS = {
    "mdevs of the GPU": ("tesla-t4:mdev", "T4-4Q", "T4-8Q"),
    "mdevs of virtual functions": ("a2:mdev", "A2-4Q", "A2-8Q"),
    "vendor VFIO": ("l40s:vfio", "L40S-8Q", "L40S-24Q"),
    "MIG-backed": ("h100-80gb-hbm3:vfio", "H100XM-1-10C", "H100XM-3-40C"),
}


def write(one: str, other: str) -> None:
    Path("config.yaml").write_text(CONFIG.format(one=one, other=other))


def vgpus(sim: Sim) -> list[dict[str, str]]:
    found: list[dict[str, str]] = sim.node.show()["gpus"][0]["vgpus"]
    return found


def types(sim: Sim) -> Counter[str]:
    return Counter(each["type"].removeprefix("NVIDIA ").removeprefix("GRID ") for each in vgpus(sim))


def kernel_writes(sim: Sim) -> int:
    return sum(bool(c.get("write") and not c.get("hand")) for c in sim.node.calls())


@pytest.mark.parametrize(("template", "one", "other"), FRAMEWORKS.values(), ids=FRAMEWORKS)
def test_apply_and_assert(template: str, one: str, other: str, host: Host, run: Run) -> None:
    sim = host(template)
    write(one, other)
    failed = run("vgpu-dm", "assert", "-f", "config.yaml", "-c", "two")
    assert (failed.code, failed.out) == (1, "")
    assert "assertion failure: selected configuration not currently applied" in failed.err
    assert "next     aliquot vgpu-dm apply -f config.yaml -c two\n" in failed.err
    assert run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "two") == (0, "", APPLIED)
    assert types(sim) == {one: 2}
    assert run("vgpu-dm", "assert", "-f", "config.yaml", "-c", "two") == (0, "", CURRENT)
    before = kernel_writes(sim)
    assert run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "two") == (0, "", APPLIED)
    assert kernel_writes(sim) == before, "the original would do nothing either"
    impossible = run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "impossible")
    assert (impossible.code, impossible.out, kernel_writes(sim)) == (1, "", before)
    assert run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "other").code == 0
    assert types(sim) == {other: 1}
    assert run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "none").code == 0
    assert types(sim) == {}


def test_a_vgpu_of_a_running_vm_is_refused_by_name_and_a_match_stays(host: Host, run: Run) -> None:
    # The original deletes every vGPU of a GPU first, whether a VM has it or not.
    sim = host("l40s:vfio")
    write("L40S-8Q", "L40S-24Q")
    assert run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "two").code == 0
    assert run("sim", "vm", "start", "desktop", vgpus(sim)[0]["function"]).code == 0
    before, writes = vgpus(sim), kernel_writes(sim)
    refused = run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "other")
    assert (refused.code, refused.out) == (1, "")
    assert "desktop" in refused.err
    assert "--policy" not in refused.err, "it has no such option"
    checked = run("vgpu-dm", "assert", "-f", "config.yaml", "-c", "other")
    assert checked.code == 1
    assert "apply is refused: " in checked.err
    assert "holder   vm 40001 (desktop)" in checked.err
    assert "vgpu-dm apply" not in checked.err, "that would be refused"
    assert (vgpus(sim), kernel_writes(sim)) == (before, writes)
    Path("config.yaml").write_text("version: v1\nvgpu-configs: {less: [{devices: all, vgpu-devices: {L40S-8Q: 1}}]}\n")
    assert run("vgpu-dm", "apply", "-f", "config.yaml") == (0, "", APPLIED)
    assert vgpus(sim) == before[:1], "the one of the VM"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["apply"], 1),
        (["apply", "-f", "missing.yaml", "-c", "x"], 1),
        (["apply", "-f", "config.yaml"], 1),
        (["apply", "-f", "config.yaml", "-c", "nope"], 1),
        (["apply", "-z"], 1),
        (["assert", "-a", "-f", "config.yaml", "-c", "nope"], 1),
        (["no-such-verb"], 3),
    ],
)
def test_errors_are_exit_code_1(words: list[str], code: int, run: Run) -> None:
    write("A2-4Q", "A2-8Q")
    done = run("vgpu-dm", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err


def test_a_file_of_the_mig_manager_is_refused_as_by_the_original(host: Host, run: Run) -> None:
    sim = host("h100-80gb-hbm3:vfio")
    Path("mig.yaml").write_text(
        "version: v1\nmig-configs: {half: [{devices: all, mig-enabled: true, mig-devices: {3g.40gb: 1}}]}\n"
    )
    for words in (["apply"], ["assert"], ["assert", "-a"]):
        refused = run("vgpu-dm", *words, "-f", "mig.yaml", "-c", "half")
        assert (refused.code, refused.out) == (1, "")
        assert "mig.yaml has mig-configs, not vgpu-configs" in refused.err
        assert "aliquot mig-parted" in refused.err
    assert kernel_writes(sim) == 0
    assert not sim.node.show()["gpus"][0]["instances"]


def test_a_valid_config_needs_no_hardware(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "no-such-node")
    write("A2-4Q", "A2-8Q")
    valid = (0, "", "Selected vGPU device configuration is valid\n")
    assert run("vgpu-dm", "assert", "--valid-config", "-f", "config.yaml", "-c", "two") == valid
    for name, value in (("CONFIG_FILE", "config.yaml"), ("SELECTED_CONFIG", "two"), ("VALID_CONFIG", "true")):
        monkeypatch.setenv(f"VGPU_DM_{name}", value)
    assert run("vgpu-dm", "assert") == valid


def test_debug_before_the_verb_and_a_config_of_other_gpus(host: Host, run: Run) -> None:
    host("a2:mdev")
    write("A2-4Q", "A2-8Q")
    done = run("vgpu-dm", "-d", "apply", "-config-file", "config.yaml", "-c", "two")
    assert done.code == 0
    assert "created vGPU NVIDIA A2-4Q" in done.err
    elsewhere = run("vgpu-dm", "apply", "-f", "config.yaml", "-c", "elsewhere")
    assert elsewhere.code == 0
    assert "note: config.yaml: 'elsewhere' matches no GPU of this node" in elsewhere.err
