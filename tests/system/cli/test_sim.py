"""``aliquot sim``: simulated nodes from the command line."""

from __future__ import annotations

import os

import pytest

from aliquot.errors import AliquotError
from aliquot.sim import lifecycle as control

from .conftest import Run, Sim


def test_a_life_of_a_node(run: Run, state: str) -> None:
    started = run("sim", "start", "a30*2", "--name", "life")
    assert (started.code, started.out) == (0, "life\n")
    assert "aliquot show --sim life" in started.err
    assert "life" in run("sim", "list").out.splitlines()
    assert run("sim", "start", "a30", "--name", "life").code == 2
    again = run(
        "sim", "start", "a30", "--name", "second", "--driver", "535.183.01", "--latency", "measured", "-o", "json"
    )
    assert again.document["node"] == "second"
    assert run("sim", "show", "second", "-o", "json").document["driver"] == "535.183.01"
    which = run("sim", "reboot")
    assert which.code == 2
    assert "none was named" in which.err
    assert run("sim", "stop", "life").out == "stopped life\n"
    assert run("sim", "reboot").out == "second has rebooted\n"
    assert run("sim", "stop", "--all", "second").code == 2
    assert run("sim", "stop", "--all").code == 0
    assert control.names(state) == []
    assert run("sim", "show").code == 20
    assert run("sim", "stop", "life").code == 20
    empty = run("sim", "list")
    assert (empty.code, empty.out) == (0, "")
    assert "aliquot sim start dgx-a100" in empty.err


def test_acting_behind_our_back(a100: Sim, run: Run) -> None:
    assert run("sim", "mode", "0", "on").out == "MIG mode on of GPU 0 is set\n"
    assert run("sim", "create", "0", "3g.20gb", "--start", "4", "-o", "json").document["instance"] == 2
    assert run("sim", "create", "0", "id:19", "--no-compute").code == 0
    assert run("sim", "hold", "0", "2", "--pid", "77").out == "process 77 is on instance 2 of GPU 0\n"
    text = run("sim", "show").out
    assert "3g.20gb at 4:4" in text
    assert "no compute instance" in text
    assert "process 77" in text
    shown = run("show").out
    assert "held by process 77" in shown
    assert "no compute instance" in shown
    refused = run("sim", "destroy", "0", "2")
    assert (refused.code, refused.out) == (20, "")
    assert run("sim", "release", "0", "2").out == "ended 1 process on instance 2 of GPU 0\n"
    assert run("sim", "destroy", "0", "2").out == "destroyed instance 2 of GPU 0\n"
    assert run("sim", "destroy", "0", "2").code == 2
    assert run("sim", "create", "0", "9g.90gb").code == 2
    assert run("sim", "hold", "9", "1").code == 2


def test_the_call_log(a100: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "7g.40gb").code == 0
    calls = run("sim", "show", "--calls", "-o", "json").document["calls"]
    assert [call["seq"] for call in calls] == list(range(1, len(calls) + 1))
    assert {"seq", "call", "gpu", "instance", "rc"} <= set(calls[0])
    assert "DeviceCreateGpuInstanceWithPlacement" in run("sim", "show", "--calls").out


def test_faults(a100: Sim, run: Run) -> None:
    assert run("sim", "fault", "busy", "gpu=0", "calls=1").out == "fault busy is set\n"
    assert "fault  kind=busy" in run("sim", "show").out
    assert run("sim", "fault", "none").out == "faults are cleared\n"
    assert run("sim", "show", "-o", "json").document["faults"] == []
    for words in (["nonsense"], ["busy", "gpu"], ["fail"], ["busy", "gpu=9", "calls=1"]):
        assert run("sim", "fault", *words).code == 2, words
    misspelt = run("sim", "fault", "fail", "call=DeviceGetMigMod", "code=999")
    assert misspelt.code == 2
    assert "no call 'DeviceGetMigMod': did you mean DeviceGetMigMode" in misspelt.err
    assert run("sim", "show", "-o", "json").document["faults"] == []
    assert run("sim", "fault", "lost", "gpu=0").code == 0
    assert "has fallen off the bus" in run("show").out
    assert run("sim", "reboot").code == 0
    assert "has fallen off the bus" not in run("show").out
    assert run("sim", "reset", "0").out == "GPU 0 was reset\n"


def test_the_library_of_a_node(a100: Sim, run: Run) -> None:
    try:
        control.library(a100.node.state_dir, a100.name)
    except AliquotError as error:
        pytest.skip(error.brief)
    path = run("sim", "lib").out.strip()
    assert os.path.basename(path) == "libnvidia-ml.so.1"
    assert os.path.exists(path)
    assert run("sim", "lib", "-o", "json").document["path"] == path


def test_two_directories_are_two_environments(
    a100: Sim, run: Run, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(tmp_path))
    monkeypatch.delenv("ALIQUOT_SIM")
    assert run("sim", "list").out == ""
    assert run("show", "--sim", a100.name).code == 20


def test_a_state_directory_that_is_not_ours_to_read(run: Run, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> list[str]:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("aliquot.sim.lifecycle.os.path.isdir", lambda _: True)
    monkeypatch.setattr("aliquot.sim.lifecycle.os.listdir", refused)
    result = run("sim", "list")
    assert (result.code, result.out) == (20, "")
    assert "Permission denied" in result.err
    assert "ls -ld " in result.err


def test_of_many_nodes_only_some_are_named(run: Run) -> None:
    assert run("sim", "start", "a2", "--name", "many", "--count", "12").code == 0
    assert "many-10 and 2 more" in run("sim", "show").err
    answer = run("sim", "stop", "--all").out
    assert answer.startswith("stopped many-01, ")
    assert answer.endswith("many-10 and 2 more\n")


@pytest.mark.parametrize("word", ["kind=lost", "do=stop", "self=1"])
def test_a_fault_takes_no_word_of_the_protocol(word: str, a100: Sim, run: Run) -> None:
    refused = run("sim", "fault", "lost", "gpu=0", word)
    assert refused.code == 2
    assert word.partition("=")[0] in refused.err
    assert a100.node.show()["faults"] == []
