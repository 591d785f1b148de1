"""nvidia-mig-parted's command line: its flags, variables, success lines and exit codes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from .conftest import Run, Sim

CONFIG = """\
version: v1
mig-configs:
  off: [{devices: all, mig-enabled: false, mig-devices: {}}]
  on: [{devices: all, mig-enabled: true, mig-devices: {}}]
  balanced: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 2g.10gb: 1, 3g.20gb: 1}}]
  whole: [{devices: all, mig-enabled: true, mig-devices: {7g.40gb: 1}}]
  typo: [{devices: all, mig-enabled: true, mig-devices: {7g.41gb: 1}}]
  infeasible: [{devices: all, mig-enabled: true, mig-devices: {4g.20gb: 1, 3g.20gb: 2}}]
  other: [{devices: [5], mig-enabled: true, mig-devices: {7g.40gb: 1}}]
"""
GOOD = CONFIG.replace("  typo: [{devices: all, mig-enabled: true, mig-devices: {7g.41gb: 1}}]\n", "")
APPLIED = "MIG configuration applied successfully\n"


def profiles(sim: Sim, gpu: int = 0) -> Counter[str]:
    return Counter(i["profile"] for i in sim.node.show()["gpus"][gpu]["instances"])


@pytest.fixture(autouse=True)
def files(clean: None) -> None:
    Path("config.yaml").write_text(GOOD)
    Path("bad.yaml").write_text(CONFIG)


def test_apply_and_assert(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "assert", "-f", "config.yaml", "-c", "balanced").code == 1
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "balanced") == (0, APPLIED, "")
    assert profiles(a100) == {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}
    done = run("mig-parted", "assert", "-f", "config.yaml", "-c", "balanced")
    assert done == (0, "Selected MIG configuration currently applied\n", "")
    before = len(a100.writes())
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "balanced") == (0, APPLIED, "")
    assert len(a100.writes()) == before
    mode = run("mig-parted", "assert", "-m", "-f", "config.yaml", "-c", "whole")
    assert mode.out == "Selected MIG mode settings from configuration currently applied\n"
    failed = run("mig-parted", "assert", "-f", "config.yaml", "-c", "whole")
    assert (failed.code, failed.out) == (1, "")
    assert "Assertion failure: selected configuration not currently applied" in failed.err


def test_a_valid_config_needs_no_hardware(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALIQUOT_SIM", "no-such-node")
    valid = run("mig-parted", "assert", "-a", "-f", "config.yaml", "-c", "whole")
    assert valid == (0, "Selected MIG configuration is valid\n", "")
    assert run("mig-parted", "assert", "--valid-config", "-f", "config.yaml", "-c", "nope").code == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["apply"], 1),
        (["apply", "-f", "missing.yaml", "-c", "x"], 1),
        (["apply", "-f", "config.yaml"], 1),
        (["apply", "-f", "config.yaml", "-c", "nope"], 1),
        (["apply", "-f", "bad.yaml", "-c", "typo"], 1),
        (["apply", "-f", "config.yaml", "-c", "infeasible"], 1),
        (["apply", "-z"], 1),
        (["checkpoint"], 1),
        (["restore", "-f", "missing.json"], 1),
        (["export", "-o", "toml"], 1),
        (["no-such-verb"], 3),
    ],
)
def test_failures_change_nothing(words: list[str], code: int, a100: Sim, run: Run) -> None:
    # mig-parted itself destroys everything and prints success for a profile that the GPU does not have.
    a100.node.set_mode(0, True)
    a100.node.create(0, "1g.5gb")
    result = run("mig-parted", *words)
    assert (result.code, result.out) == (code, "")
    assert result.err
    assert a100.writes() == []
    assert profiles(a100) == {"1g.5gb": 1}


def test_what_can_stay_stays_and_held_instances_are_refused(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "balanced").code == 0
    (held,) = [i["id"] for i in a100.node.show()["gpus"][0]["instances"] if i["profile"] == "3g.20gb"]
    a100.node.hold(0, held, pid=99)
    before = len(a100.writes())
    refused = run("mig-parted", "apply", "-f", "config.yaml", "-c", "whole")
    assert refused.code == 1
    assert "process 99" in refused.err
    assert len(a100.writes()) == before


@pytest.mark.parametrize("verb", ["apply", "assert"])
def test_an_index_that_is_not_here_is_a_note(verb: str, a100: Sim, run: Run) -> None:
    # mig-parted's own examples/config.yaml lists the GPUs of a node that has eight.
    done = run("mig-parted", verb, "-f", "config.yaml", "-c", "other")
    assert done.code == 0
    assert "note: config.yaml:8:" in done.err
    assert "no GPU with the index 5 on this node" in done.err
    assert a100.writes() == []


def test_a_config_for_other_gpus_is_a_note(a100: Sim, run: Run) -> None:
    # A fleet shares one file and one name for all of its pools.
    Path("fleet.yaml").write_text(
        'version: v1\nmig-configs:\n  all: [{devices: all, device-filter: "0x233010DE", mig-enabled: true, '
        "mig-devices: {1g.10gb: 7}}]\n"
    )
    done = run("mig-parted", "apply", "-f", "fleet.yaml", "-c", "all")
    assert (done.code, done.out) == (0, APPLIED)
    assert "note: fleet.yaml: 'all' matches no GPU of this node" in done.err
    assert a100.writes() == []


@pytest.mark.parametrize("verb", ["apply", "assert"])
def test_a_gpu_that_is_lost_or_has_no_mig_is_no_success(verb: str, a100: Sim, run: Run) -> None:
    a100.node.inject_fault("lost", gpu=0)
    done = run("mig-parted", verb, "-f", "config.yaml", "-c", "whole")
    assert (done.code, done.out) == (1, "")
    assert "fell off the bus" in done.err or "fallen off the bus" in done.err or "cannot be met" in done.err


@pytest.mark.parametrize(
    "entries",
    [
        "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}, mig-devices: {}}",
        '{devices: all, device-filter: "0x20B01ODE", mig-enabled: true, mig-devices: {1g.5gb: 7}}, '
        "{devices: all, mig-enabled: false}",
        "{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}, {devices: [0], mig-enabled: false}",
    ],
)
def test_a_slip_that_mig_parted_takes_in_silence_is_refused(entries: str, a100: Sim, run: Run) -> None:
    # mig-parted would destroy what the file requests.
    Path("slip.yaml").write_text(f"version: v1\nmig-configs:\n  slip: [{entries}]\n")
    done = run("mig-parted", "apply", "-f", "slip.yaml", "-c", "slip")
    assert (done.code, done.out) == (1, "")
    assert "slip.yaml:3:" in done.err
    assert a100.writes() == []


def test_words_as_go_reads_them(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "apply", "-config-file", "config.yaml", "-selected-config=whole").code == 0
    assert profiles(a100) == {"7g.40gb": 1}
    assert run("mig-parted", "help").out == run("mig-parted", "--help").out
    assert run("mig-parted", "help", "apply").out == run("mig-parted", "apply", "--help").out
    assert "--config-file" in run("mig-parted", "apply", "-help").out


def test_the_hook_of_a_config_does_not_fire_for_modes_alone(a100: Sim, run: Run, tmp_path: Path) -> None:
    run("mig-parted", "apply", "-f", "config.yaml", "-c", "whole")
    log = tmp_path / "log"
    fired = [
        f"  {name}: [{{command: /bin/sh, args: [-c, 'echo {name} >> {log}']}}]"
        for name in ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")
    ]
    Path("hooks.yaml").write_text("\n".join(["version: v1", "hooks:", *fired, ""]))
    assert run("mig-parted", "apply", "-m", "-f", "config.yaml", "-c", "off", "-k", "hooks.yaml").code == 0
    assert log.read_text().split() == ["apply-start", "pre-apply-mode", "apply-exit"]


def test_a_checkpoint_has_the_bytes_of_the_original(a100: Sim, run: Run) -> None:
    # The checkpoint is one line of JSON without a space or a final newline.
    run("mig-parted", "apply", "-f", "config.yaml", "-c", "whole")
    assert run("mig-parted", "checkpoint", "-f", "state.json").code == 0
    uuid = a100.node.show()["gpus"][0]["uuid"]
    assert Path("state.json").read_text() == (
        f'{{"Version":"v1","MigState":{{"Devices":[{{"UUID":"{uuid}","MigMode":1,"GpuInstances":[{{"ProfileID":4,'
        '"Placement":{"Start":0,"Size":8},"ComputeInstances":[{"ProfileID":4,"EngProfileID":0}]}]}]}}'
    )


def test_variables_stand_in_for_flags(a100: Sim, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIG_PARTED_CONFIG_FILE", "config.yaml")
    monkeypatch.setenv("MIG_PARTED_SELECTED_CONFIG", "whole")
    assert run("mig-parted", "apply") == (0, APPLIED, "")
    assert run("mig-parted", "assert", "-c", "balanced").code == 1
    monkeypatch.setenv("MIG_PARTED_MODE_CHANGE_ONLY", "1")
    assert run("mig-parted", "assert", "-c", "balanced").code == 0
    monkeypatch.setenv("MIG_PARTED_DEBUG", "true")
    monkeypatch.delenv("MIG_PARTED_MODE_CHANGE_ONLY")
    answer = run("mig-parted", "apply", "-c", "balanced")
    assert answer.out == APPLIED
    assert "created 3g.20gb" in answer.err


def test_debug_may_stand_before_the_verb(a100: Sim, run: Run) -> None:
    answer = run("mig-parted", "-d", "apply", "-f", "config.yaml", "-c", "whole")
    assert answer.out == APPLIED
    assert "created 7g.40gb" in answer.err


def test_modes_alone_and_without_a_reset(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "apply", "-m", "-f", "config.yaml", "-c", "whole") == (0, APPLIED, "")
    assert profiles(a100) == {}
    assert run("mig-parted", "apply", "-s", "-f", "config.yaml", "-c", "whole") == (0, APPLIED, "")
    assert run("mig-parted", "apply", "-s", "-f", "config.yaml", "-c", "off") == (0, APPLIED, "")
    a100.node.inject_fault("reset-pending", gpu=0)
    pending = run("mig-parted", "apply", "-s", "-f", "config.yaml", "-c", "whole")
    assert pending.code == 1
    assert "pending" in pending.err
    assert run("mig-parted", "apply", "-s", "-m", "-f", "config.yaml", "-c", "whole") == (0, APPLIED, "")
    assert "DeviceReset" not in [call["call"] for call in a100.writes()]
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "whole") == (0, APPLIED, "")
    assert "DeviceReset" in [call["call"] for call in a100.writes()]
    assert profiles(a100) == {"7g.40gb": 1}


def test_hooks_get_the_variables(a100: Sim, run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = f"{{command: /bin/sh, args: [-c, 'env | grep MIG_PARTED | sort > {log}']}}"
    Path("hooks.yaml").write_text(f"version: v1\nhooks:\n  apply-exit: [{command}]\n")
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "on", "-k", "hooks.yaml").code == 0
    assert log.read_text().splitlines() == [
        "MIG_PARTED_CONFIG_FILE=config.yaml",
        "MIG_PARTED_HOOKS_FILE=hooks.yaml",
        "MIG_PARTED_MODE_CHANGE_ONLY=false",
        "MIG_PARTED_SELECTED_CONFIG=on",
        "MIG_PARTED_SKIP_RESET=false",
    ]


def test_export_checkpoint_and_restore(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "balanced").code == 0
    exported = yaml.safe_load(run("mig-parted", "export", "-l", "mine").out)
    entry = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}}
    assert exported == {"version": "v1", "mig-configs": {"mine": [entry]}}
    assert msgspec.json.decode(run("mig-parted", "export", "-l", "mine", "-o", "json").out) == exported
    saved = run("mig-parted", "checkpoint", "-f", "state.json")
    assert saved == (0, "MIG configuration checkpointed successfully\n", "")
    before = a100.node.show()["gpus"][0]["instances"]
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "off").code == 0
    restored = run("mig-parted", "restore", "-f", "state.json")
    assert restored == (0, "MIG configuration restored successfully\n", "")
    assert a100.node.show()["gpus"][0]["instances"] == before


def test_a_generated_config_runs_as_it_is(dgx: Sim, run: Run) -> None:
    assert run("mig-parted", "generate-config", "-f", "generated.yaml") == (0, "", "")
    names = list(yaml.safe_load(Path("generated.yaml").read_text())["mig-configs"])
    assert {"all-disabled", "all-enabled", "all-balanced", "all-1g.5gb", "all-1g.5gb.me"} <= set(names)
    assert run("mig-parted", "generate-config").out == Path("generated.yaml").read_text()
    assert run("mig-parted", "apply", "-f", "generated.yaml", "-c", "all-balanced") == (0, APPLIED, "")
    assert all(profiles(dgx, n) == {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1} for n in range(8))


def test_a_config_from_stdin(a100: Sim, program: Run) -> None:
    result = program("mig-parted", "apply", "-f", "-", "-c", "whole", stdin=GOOD)
    assert result == (0, APPLIED, "")


def test_a_hardware_failure_is_undone_and_is_one_error(a100: Sim, run: Run) -> None:
    assert run("mig-parted", "apply", "-f", "config.yaml", "-c", "balanced").code == 0
    a100.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
    failed = run("mig-parted", "apply", "-f", "config.yaml", "-c", "whole")
    assert (failed.code, failed.out) == (1, "")
    assert "undone" in failed.err
    assert profiles(a100) == {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}


def test_without_a_verb_it_prints_its_help_as_the_original_does(run: Run) -> None:
    result = run("mig-parted")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("usage: aliquot mig-parted COMMAND")
    assert run("slurm").code == 2, "our own groups need a verb"
