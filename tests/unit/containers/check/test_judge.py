"""Rules of ``aliquot docker check``: when each rule reports a finding, and when it must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.containers.check.facts import (
    ContainerFacts,
    ContainerToolkit,
    DaemonJson,
    RuntimeFacts,
    SpecFacts,
    version,
)
from aliquot.containers.check.probe import daemon_json, spec_facts
from aliquot.containers.check.rules import RuntimeReport, judge
from aliquot.containers.runtime.cdi_names import entries
from unit.containers.runtime.nodes import all_devices, full_spec, nodes_of
from unit.containers.runtime.nodes import spec as cdi

PATH = "/var/run/cdi/nvidia.com-gpu.yaml"
DOCKER = RuntimeFacts(
    "docker",
    True,
    client=(28, 2, 1),
    server=(28, 2, 1),
    cdi_dirs=("/etc/cdi", "/var/run/cdi"),
    runtimes=("nvidia", "runc"),
)
PODMAN = RuntimeFacts("podman", True, client=(5, 4, 2), server=(5, 4, 2), oci="crun")
TOOLKIT = ContainerToolkit((1, 17, 8), "/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook")
FACTS = ContainerFacts((DOCKER, PODMAN), DaemonJson("/etc/docker/daemon.json"), TOOLKIT, (SpecFacts(PATH, (0, 5, 0)),))
DEVICES = all_devices()
GOOD = ((PATH, full_spec(DEVICES)),)


def judged(facts: ContainerFacts = FACTS, documents: Any = GOOD, devices: Any = DEVICES) -> RuntimeReport:
    return judge(facts, devices, entries(documents))


def rules(report: RuntimeReport) -> set[str]:
    return {f.rule for f in (*report.findings, *(f for v in report.verdicts for f in v.findings))}


def test_a_machine_where_everything_is_right() -> None:
    report = judged()
    assert rules(report) == set()
    assert [(v.runtime, v.version, v.cdi, v.legacy) for v in report.verdicts] == [
        ("docker", "28.2.1", True, True),
        ("podman", "5.4.2", True, True),
    ]


def changed(value: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(value, **fields)


def of_docker(**fields: Any) -> ContainerFacts:
    found: ContainerFacts = changed(FACTS, runtimes=(changed(DOCKER, **fields),))
    return found


def of_podman(**fields: Any) -> ContainerFacts:
    found: ContainerFacts = changed(FACTS, runtimes=(changed(PODMAN, **fields),))
    return found


NEWER = (SpecFacts(PATH, (0, 6, 0)),)
OLD_DOCKER = {"server": (26, 1, 5), "cdi_dirs": ()}


@pytest.mark.parametrize(
    ("facts", "rule", "cdi", "legacy"),
    [
        (of_docker(error="cannot connect"), "SILENT", False, False),
        (of_docker(remote_address="tcp://10.0.0.1:2375"), "ELSEWHERE", False, False),
        (of_docker(server=(24, 0, 9), cdi_dirs=()), "TOO_OLD", False, True),
        (of_docker(client=(20, 10, 24)), "TOO_OLD", False, True),
        (of_docker(**OLD_DOCKER), "CDI_OFF", False, True),
        (changed(of_docker(**OLD_DOCKER), daemon=DaemonJson("d", True, cdi=True)), "NOT_RESTARTED", False, True),
        (changed(of_docker(cdi_dirs=()), daemon=DaemonJson("d", True, cdi=False)), "CDI_OFF", False, True),
        (changed(of_docker(), daemon=DaemonJson("d", True, "line 3: comma")), "DAEMON_JSON", False, False),
        (of_docker(cdi_dirs=("/srv/cdi",)), "NO_SPEC", False, True),
        (of_docker(runtimes=("runc",)), "NOT_REGISTERED", True, True),
        (of_docker(emulated=True), "EMULATED", True, True),
        (of_podman(client=(4, 0, 3)), "TOO_OLD", False, True),
        (changed(of_podman(client=(4, 3, 1)), specs=NEWER), "SPEC_TOO_NEW", False, True),
        (changed(of_podman(client=(4, 9, 4)), specs=NEWER), "SPEC_TOO_NEW", True, True),
        (changed(of_podman(), hybrid=True), "HYBRID", False, False),
        (changed(FACTS, toolkit=ContainerToolkit()), "TOOLKIT", True, False),
        (changed(FACTS, toolkit=changed(TOOLKIT, version=(1, 6, 0))), "TOOLKIT_OLD", True, False),
        (changed(FACTS, toolkit=changed(TOOLKIT, error="line 1")), "TOOLKIT_SETTINGS", True, False),
        (
            changed(FACTS, toolkit=changed(TOOLKIT, settings={"nvidia-container-cli": {"no-cgroups": True}})),
            "NO_CGROUPS",
            True,
            True,
        ),
        (changed(FACTS, specs=(SpecFacts(PATH, (0, 5, 0), ("/usr/lib/libcuda.so.1",)),)), "SPEC_MISSING", False, True),
    ],
)
def test_each_rule_speaks_alone(facts: ContainerFacts, rule: str, cdi: bool, legacy: bool) -> None:
    report = judged(facts)
    assert rules(report) == {rule}
    assert {(v.cdi, v.legacy) for v in report.verdicts} == {(cdi, legacy)}


def test_what_is_new_enough_is_not_reported_of() -> None:
    assert rules(judged(changed(of_podman(), specs=NEWER))) == set()
    assert rules(judged(changed(of_podman(oci="runc"), hybrid=True))) == set()
    assert rules(judged(of_docker(server=(25, 0, 0), client=(25, 0, 0)))) == set()
    assert rules(judged(changed(of_docker(), daemon=DaemonJson("d", True, cdi=True)))) == set()


def test_files_of_devices() -> None:
    assert rules(judged(documents=())) == {"NO_SPEC"}
    assert rules(judged(devices=())) == {"NO_DEVICE", "STALE"}
    less = cdi({d.uuid: nodes_of(d) for d in DEVICES[1:]})
    report = judged(documents=((PATH, less),))
    assert rules(report) == {"NOT_NAMED"}
    assert not any(v.cdi for v in report.verdicts)
    both = (*GOOD, ("/var/run/cdi/nvidia.yaml", full_spec(DEVICES)))
    assert rules(judged(documents=both)) == {"TWICE"}
    apart = (*GOOD, ("/etc/cdi/nvidia.yaml", full_spec(DEVICES)))  # /var/run/cdi takes precedence over /etc/cdi
    assert rules(judged(documents=apart)) == set()


def test_nothing_installed() -> None:
    report = judged(changed(FACTS, runtimes=(RuntimeFacts("docker"), RuntimeFacts("podman"))))
    assert rules(report) == {"NO_RUNTIME"}
    assert not report.fine


def test_every_finding_says_what_to_type() -> None:
    for facts in (of_docker(**OLD_DOCKER), of_podman(client=(4, 3, 1)), changed(FACTS, toolkit=ContainerToolkit())):
        report = judged(facts, ())
        assert all(f.next_step for f in (*report.findings, *(f for v in report.verdicts for f in v.findings)))


@pytest.mark.parametrize(
    ("text", "fault", "cdi"),
    [
        ('{"features": {"cdi": true}}', "", True),
        ('{"features": {"cdi": false}}', "", False),
        ("{}", "", None),
        ("", "", None),
        ('{"features": {"cdi": "yes"}}', "features.cdi", None),
        ("[]", "not a JSON object", None),
        ('{"features": ', "", None),
        ("\xff", "", None),
    ],
)
def test_dockers_settings(tmp_path: Path, text: str, fault: str, cdi: bool | None) -> None:
    path = tmp_path / "daemon.json"
    path.write_bytes(text.encode("latin-1"))
    found = daemon_json(str(path))
    assert (found.present, found.cdi) == (True, cdi)
    assert fault in found.error
    assert bool(found.error) == (text in ('{"features": {"cdi": "yes"}}', "[]", '{"features": ', "\xff"))


def test_no_settings_are_fine(tmp_path: Path) -> None:
    assert daemon_json(str(tmp_path / "none")) == DaemonJson(str(tmp_path / "none"))


def test_what_a_file_wants_of_the_host(tmp_path: Path) -> None:
    there = tmp_path / "lib.so"
    there.write_text("")
    mounts = [{"hostPath": str(there), "containerPath": "/x"}, {"hostPath": "/nonexistent/a"}]
    edits = {"mounts": mounts, "hooks": [{"path": "/nonexistent/hook", "hookName": "createContainer"}]}
    found = spec_facts("a.yaml", {"cdiVersion": "0.5.0", "devices": [], "containerEdits": edits})
    assert found == SpecFacts("a.yaml", (0, 5, 0), ("/nonexistent/a", "/nonexistent/hook"))


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("Docker version 26.1.5+dfsg1, build a72d7cd", (26, 1, 5)), ("0.5.0", (0, 5, 0)), ("28.2", (28, 2)), (None, ())],
)
def test_versions(text: object, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers
