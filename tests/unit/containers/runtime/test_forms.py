"""Arguments for ``docker run``, and entries of a Compose file."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.containers.runtime.compose import Service, document, parse_services, validation_errors
from aliquot.containers.runtime.run_arguments import checked_name, form_of, run_arguments
from aliquot.errors import AliquotError, UsageError
from unit.containers.runtime.nodes import all_devices

FIRST, SECOND = all_devices()[:2]
CDI = (f"nvidia.com/gpu={FIRST.uuid}",)


@pytest.mark.parametrize(
    ("form", "runtime", "words"),
    [
        ("cdi", "docker", ["--device", CDI[0]]),
        ("cdi", "podman", ["--device", CDI[0]]),
        ("cdi", "nerdctl", ["--device", CDI[0]]),
        ("legacy", "docker", ["--gpus", f"device={FIRST.uuid}"]),
        ("legacy", "nerdctl", ["--gpus", f"device={FIRST.uuid}"]),
        ("legacy", "podman", ["--env", f"NVIDIA_VISIBLE_DEVICES={FIRST.uuid}"]),
        ("env", "docker", ["--runtime", "nvidia", "--env", f"NVIDIA_VISIBLE_DEVICES={FIRST.uuid}"]),
    ],
)
def test_one_device(form: str, runtime: str, words: list[str]) -> None:
    definite = form_of(form, runtime, 1)
    assert list(run_arguments([FIRST], definite, runtime, cdi=CDI)) == words


def test_several_devices_and_everything_else() -> None:
    assert form_of("legacy", "docker", 2) == "env"
    words = run_arguments([FIRST, SECOND], "env", "docker", label="r1", name="web")
    assert words[:4] == ("--name", "web", "--label", "aliquot.reservation=r1")
    assert words[-1] == f"NVIDIA_VISIBLE_DEVICES={FIRST.uuid},{SECOND.uuid}"
    assert not any(set(word) & set(" \"'") for word in words)


@pytest.mark.parametrize(
    ("form", "runtime", "count"), [("gpus", "podman", 1), ("env", "nerdctl", 1), ("gpus", "docker", 2)]
)
def test_forms_that_a_runtime_has_not(form: str, runtime: str, count: int) -> None:
    with pytest.raises(UsageError):
        form_of(form, runtime, count)


@pytest.mark.parametrize("name", ["", "a", "-web", "a b", "ä1", "web/1"])
def test_names_that_runtimes_refuse(name: str) -> None:
    with pytest.raises(UsageError):
        checked_name(name)


def test_services_as_they_are_typed() -> None:
    assert parse_services(["train=3g.20gb", "web=1g.5gb,0:1"]) == (("train", "3g.20gb"), ("web", "1g.5gb,0:1"))
    assert parse_services(["3g.20gb"]) == (("app", "3g.20gb"),)


@pytest.mark.parametrize("words", [["3g.20gb", "1g.5gb"], ["a=1", "a=2"], ["a b=1"], ["a="], ["=1"]])
def test_services_that_are_not(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_services(words)


def service(form: str, runtime: str) -> Any:
    made = document([Service("web", (FIRST,), "img", CDI, "r1")], form, runtime)["services"]["web"]
    assert made.pop("image") == "img"
    assert made.pop("labels") == {"aliquot.reservation": "r1"}
    return made


def test_compose_forms() -> None:
    def reserved(driver: str, ident: str) -> dict[str, Any]:
        devices = [{"driver": driver, "device_ids": [ident], "capabilities": ["gpu"]}]
        return {"deploy": {"resources": {"reservations": {"devices": devices}}}}

    assert service("cdi", "docker") == reserved("cdi", CDI[0])
    assert service("gpus", "docker") == reserved("nvidia", FIRST.uuid)
    assert service("cdi", "podman") == {"devices": list(CDI)}
    environment = {"NVIDIA_VISIBLE_DEVICES": FIRST.uuid}
    assert service("env", "docker") == {"runtime": "nvidia", "environment": environment}
    assert service("env", "podman") == {"environment": environment}


def test_what_compose_would_refuse_is_not_written() -> None:
    with pytest.raises(AliquotError) as caught:
        document([Service("a b", (FIRST,)), Service("web", ())], "gpus", "docker")
    assert len(caught.value.details) == 2
    assert validation_errors({"services": {"web": {"gpus": "all"}}}) == (
        "service web: unknown key gpus",
        "service web: no device",
    )
