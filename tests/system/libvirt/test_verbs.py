"""``aliquot libvirt`` on a simulated node, against a real libvirtd with real VMs, through the binding and virsh."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from system.cli import hints

from .conftest import Machines


class Result(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        return msgspec.json.decode(self.out, type=dict[str, Any])


Run = Callable[[str], Result]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = str(tmp_path_factory.mktemp("state"))
    yield directory
    control.stop(directory)


@pytest.fixture
def run(
    state: str, uri: str, through: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """Return a function that runs the command. Its node has an A2 with mdevs (three A2-4Q) and an L40S with
    vendor-specific VFIO (two L40S-8Q).
    """
    for name in [n for n in os.environ if n.startswith("ALIQUOT_") and n != "ALIQUOT_CACHE_DIR"]:
        monkeypatch.delenv(name)
    settings = {"STATE_DIR": state, "BACKEND": "direct", "SIM": "n", "LIBVIRT": through}
    for name, value in settings.items():
        monkeypatch.setenv(f"ALIQUOT_{name}", value)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("LIBVIRT_DEFAULT_URI", uri)
    control.start(state, "a2:mdev,l40s:vfio", "n")

    def call(line: str) -> Result:
        capsys.readouterr()
        code = main(shlex.split(line))
        out, err = capsys.readouterr()
        hints.check_output(out, err)
        return Result(code, out, err)

    assert call("apply --gpu 0 --vgpu A2-4Q*3").code == 0
    assert call("apply --gpu 1 --vgpu L40S-8Q*2").code == 0
    yield call
    control.stop(state, "n")


def vgpus(run: Run, gpu: int) -> list[dict[str, Any]]:
    found = run("vgpu list -o json").document["gpus"][gpu]["vgpus"]
    assert isinstance(found, list)
    return found


def test_a_change_names_the_shut_off_vms_whose_vgpus_it_destroys(
    run: Run, machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.define("web-1")
    assert run("libvirt attach web-1 --vgpu A2-4Q").code == 0
    uuid = vgpus(run, 0)[0]["uuid"]
    named = f"VM web-1 (shut off) uses NVIDIA A2-4Q ({uuid}), which is destroyed"
    planned = run("plan --gpu 0 --vgpu none -o json")
    assert named in planned.document["notes"]
    assert f"note: {named}\n" in run("plan --gpu 0 --vgpu none").err
    assert named in run("vgpu disable 0 --dry-run").err
    replaced = "replaced by NVIDIA A2-8Q"
    assert replaced in run("plan --gpu 0 --vgpu A2-8Q*2").err
    with monkeypatch.context() as patch:
        patch.setenv("LIBVIRT_DEFAULT_URI", "qemu+unix:///system?socket=/nowhere")
        assert "note: VMs that use these vGPUs are not named: " in run("plan --gpu 0 --vgpu none").err
    assert run("apply --gpu 0 --vgpu none -o json").document["notes"] == planned.document["notes"]


def test_from_attach_to_detach(run: Run, machines: Machines) -> None:
    machines.define("win11")
    assert run("libvirt check win11").out.endswith("verdict: fine\n")
    done = run("libvirt attach win11 --vgpu 'NVIDIA A2-4Q' --count 2 -o json")
    assert (done.code, done.document["done"], done.document["config"]) == (0, True, True)
    uuids = [v["uuid"] for v in vgpus(run, 0)]
    assert [(d["uuid"], d["ramfb"]) for d in done.document["devices"]] == [(uuids[0], True), (uuids[1], None)]
    text = machines.virsh("dumpxml", "win11", "--inactive")
    assert text.count("ramfb='on'") == 1
    assert all(uuid in text for uuid in uuids[:2])
    checked = run("libvirt check win11 -o json").document
    assert (checked["fine"], [r["where"] for r in checked["rows"]]) == (True, ["definition", "definition"])
    # A second VM gets only what is left.
    machines.define("second")
    assert run("libvirt attach second --vgpu A2-4Q").code == 0
    refused = run("libvirt attach second --vgpu A2-4Q")
    assert (refused.code, refused.out) == (20, "")
    assert "blocked[NO_VGPU]: 1 x A2-4Q requested, 0 free of 3" in refused.err
    assert "vm win11 has it" in refused.err
    gone = run(f"libvirt detach win11 {uuids[0]}")
    assert gone.code == 0
    assert [h["device"] for h in run("libvirt check win11 -o json").document["rows"]] == [f"mdev {uuids[1]}"]
    assert run("libvirt detach win11 --all").code == 0
    assert "hostdev" not in machines.virsh("dumpxml", "win11")


def test_vendor_specific_vfio(run: Run, machines: Machines) -> None:
    machines.define("l")
    assert run("libvirt attach l --vgpu L40S-8Q --count 2").code == 0
    text = machines.virsh("dumpxml", "l")
    assert text.count("<hostdev mode='subsystem' type='pci' managed='no'>") == 2
    assert run("libvirt check l").code == 0
    functions = [v["function"] for v in vgpus(run, 1)]
    assert run("libvirt detach l --all").code == 0
    bus, slot, number = functions[0][5:7], functions[0][8:10], functions[0][-1]
    path = Path(os.environ["ALIQUOT_STATE_DIR"]) / "managed.xml"
    path.write_text(
        "<hostdev mode='subsystem' type='pci' managed='yes'><source>"
        f"<address domain='0' bus='0x{bus}' slot='0x{slot}' function='0x{number}'/></source></hostdev>"
    )
    machines.virsh("attach-device", "l", str(path), "--config")
    checked = run("libvirt check l")
    assert checked.code == 20
    assert "problem[MANAGED]" in checked.out
    assert f"aliquot libvirt detach l {functions[0]}" in checked.out


def test_rules_come_before_libvirt(run: Run, machines: Machines) -> None:
    # libvirt accepts two ramFB in a definition. It also accepts A2-4A with A2-4Q, which the guest's driver would
    # refuse.
    assert run("apply --gpu 0 --vgpu A2-4Q*2,A2-4A").code == 0
    machines.define("two")
    before = machines.virsh("dumpxml", "two")
    refused = run("libvirt attach two --vgpu A2-4Q --vgpu A2-4A")
    assert refused.code == 20
    assert "blocked[PER_VM]" in refused.err
    assert machines.virsh("dumpxml", "two") == before


def test_a_running_machine(run: Run, machines: Machines) -> None:
    machines.define("on")
    machines.start("on")
    later = run("libvirt attach on --vgpu A2-4Q")
    assert later.code == 0
    assert "VM on is running: it gets the devices at its next start" in later.err
    found = run("libvirt check on")
    assert found.code == 0
    assert "note: the running VM and its definition have different devices" in found.out
    if os.path.exists("/dev/vfio/vfio"):
        return
    live = run("libvirt attach on --vgpu A2-4Q --live")
    assert live.code == 20
    assert "blocked[NO_VFIO]" in live.err
    assert "modprobe vfio-pci" in live.err
    assert len(run("libvirt check on -o json").document["rows"]) == 1


def test_a_start_that_is_refused(run: Run, machines: Machines) -> None:
    if os.path.exists("/dev/vfio/vfio"):
        pytest.skip("this machine has VFIO")
    machines.define("off")
    started = run("libvirt attach off --vgpu A2-4Q --start")
    assert started.code == 20
    assert "attached NVIDIA A2-4Q of GPU 0" in started.err
    assert "blocked[NO_VFIO]: cannot start the VM: this host cannot pass a device through to a VM" in started.err
    assert run("libvirt attach off --vgpu A2-4Q --live").code == 20


def test_the_second_of_two_fails_in_libvirt(run: Run, machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    # Another process attaches the second device after Aliquot's check and before libvirt's.
    from aliquot.libvirt import apply as carry

    machines.define("race")
    second = vgpus(run, 0)[1]["uuid"]
    path = Path(os.environ["ALIQUOT_STATE_DIR"]) / "race.xml"
    path.write_text(
        f"<hostdev mode='subsystem' type='mdev' model='vfio-pci'><source><address uuid='{second}'/></source></hostdev>"
    )
    real = carry.attach

    def late(*arguments: Any) -> None:
        machines.virsh("attach-device", "race", str(path), "--config")
        real(*arguments)

    monkeypatch.setattr(carry, "attach", late)
    result = run("libvirt attach race --vgpu A2-4Q --count 2")
    assert result.code == 20
    assert "blocked[ATTACHED]" in result.err
    assert "was attached before the error, and is detached again" in result.err
    assert machines.virsh("dumpxml", "race").count("<hostdev") == 1


def test_after_a_reboot(run: Run, machines: Machines, state: str) -> None:
    machines.define("win11")
    assert run("libvirt attach win11 --vgpu A2-4Q").code == 0
    node = SimClient(state, "n")
    node.reboot()
    node.close()
    lost = run("libvirt check win11")
    assert lost.code == 20
    assert "problem[NO_MDEV]" in lost.out
    assert "since the last reboot: it was NVIDIA A2-4Q on 0000:01:00.4" in lost.out
    assert run("restore --boot").code == 0
    assert run("libvirt check win11").code == 0


def test_what_cannot_be(run: Run, machines: Machines) -> None:
    machines.define("vm")
    for line, code, answer in (
        ("libvirt check nope", 20, "blocked[NO_VM]: VM 'nope' not found"),
        ("libvirt attach vm", 2, "no device given: use --vgpu TYPE, or name devices"),
        ("libvirt attach vm --vgpu A2-9Q", 2, "error[UNKNOWN_TYPE]"),
        ("libvirt attach vm --vgpu A2-4Q --count 0", 2, "--count takes a number, 1 or more"),
        ("libvirt attach vm --vgpu A2-4Q:x", 2, "the count of 'A2-4Q' must be"),
        ("libvirt attach vm 0000:01:01.0", 20, "blocked[NO_VGPU]: virtual function 0000:01:01.0 has no vGPU"),
        ("libvirt attach vm 0", 20, "blocked[FUNCTIONS_IN_USE]"),
        ("libvirt attach vm 9", 20, "GPU '9' not found"),
        ("libvirt detach vm --all", 20, "blocked[NOT_ATTACHED]"),
        ("libvirt detach vm --all 0", 2, "--all excludes --vgpu and devices by name"),
        ("libvirt xml --vgpu A2-4Q --count 9", 20, "blocked[NO_VGPU]: 9 x A2-4Q requested, 3 free of 3"),
        ("libvirt check vm --connect qemu+unix:///system?socket=/none", 20, "blocked[NO_LIBVIRT]"),
        ("libvirt nodedev start 0000:01:01.0", 20, "blocked[NO_MDEV]"),
    ):
        result = run(line)
        assert (result.code, result.out) == (code, ""), line
        assert answer in result.err, result.err


def test_dry_run_touches_nothing(run: Run, machines: Machines) -> None:
    machines.define("vm")
    before = machines.virsh("dumpxml", "vm")
    shown = run("libvirt attach vm --vgpu A2-4Q --dry-run")
    assert shown.code == 0
    assert shown.out.startswith("<hostdev")
    assert machines.virsh("dumpxml", "vm") == before


def test_xml_leaves_out_what_a_machine_has(run: Run, machines: Machines, tmp_path: Path) -> None:
    machines.define("vm")
    assert run("libvirt attach vm --vgpu A2-4Q").code == 0
    result = run("libvirt xml --vgpu A2-4Q --count 2 -o json")
    taken = [v["uuid"] for v in vgpus(run, 0)][1:]
    assert [d["uuid"] for d in result.document["devices"]] == taken
    machines.define("other", *result.document["xml"])  # --validate
    offline = run("libvirt xml --vgpu A2-4Q --count 3 --connect qemu+unix:///system?socket=/none")
    assert offline.code == 0
    assert "vGPUs in the definitions of VMs count as free" in offline.err


def test_a_wheel_without_the_binding_says_what_to_install(state: str, tmp_path: Path) -> None:
    # Neither the binding nor virsh is installed.
    environment = {**os.environ, "PATH": str(tmp_path), "ALIQUOT_STATE_DIR": state, "ALIQUOT_LIBVIRT": "virsh"}
    source = str(Path(__file__).resolve().parents[3] / "src")
    import sys

    done = forkserver.run(
        [sys.executable, "-m", "aliquot", "libvirt", "check", "vm"],
        env={**environment, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 20
    assert "blocked[NO_LIBVIRT]: cannot run virsh" in done.stderr
    assert "pip install 'aliquot[libvirt]'" in done.stderr
