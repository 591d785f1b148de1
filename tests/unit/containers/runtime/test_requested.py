"""Devices with which containers were started, from recorded output of real runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.containers.runtime.inspect import container, removed_reservation, requested_devices
from aliquot.containers.runtime.models import Container, RequestedDevices

RECORDED = Path(__file__).resolve().parents[3] / "recorded" / "containers"
UUID = "MIG-45e42675-3a5c-54cf-a4b5-94f4fdf124c5"
OTHER = "MIG-89e3e031-dc03-5d76-979a-a2290774f885"


def recorded(name: str, runtime: str) -> dict[str, Container]:
    documents = msgspec.json.decode((RECORDED / name).read_bytes(), type=list[dict[str, Any]])
    return {c.name: c for c in (container(each, runtime) for each in documents)}


def test_docker() -> None:
    found = recorded("docker-26.json", "docker")
    assert found["by-cdi"].requested == RequestedDevices((UUID,))
    assert found["by-cdi"].reservation == "0123456789ab"
    assert found["by-gpus"].requested == RequestedDevices((UUID,))
    assert found["by-all"].requested == RequestedDevices(everything=True)
    assert {c.state for c in found.values()} == {"created"}
    assert all(len(c.id) == 64 and c.live for c in found.values())


def test_podman_has_cdi_names_in_the_command_line_alone() -> None:
    (found,) = recorded("podman-4.3.json", "podman").values()
    assert (found.name, found.reservation, found.requested) == ("p", "0123456789ab", RequestedDevices((UUID,)))


@pytest.mark.parametrize(
    ("host", "env", "names", "everything"),
    [
        ({"Runtime": "nvidia"}, f"{UUID},{OTHER}", (UUID, OTHER), False),
        ({"Runtime": "nvidia"}, "0:1", ("0:1",), False),
        ({"Runtime": "nvidia"}, "all", (), True),
        ({"Runtime": "nvidia"}, "void", (), False),
        ({"Runtime": "runc"}, "all", (), False),  # the runtime ignores the variable
        ({"Runtime": "runc"}, "0", (), False),
        ({"Runtime": "runc"}, UUID, (UUID,), False),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None}]}, "", (), True),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": 2, "DeviceIDs": []}]}, "", ("0", "1"), False),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["nvidia.com/gpu=all"]}]}, "", (), True),
        ({"DeviceRequests": [{"Driver": "cdi", "DeviceIDs": ["a.b/gpu=0:1", "a.b/gpu=0:1"]}]}, "", ("0:1",), False),
        ({"DeviceRequests": "nonsense", "Devices": 7}, "", (), False),
    ],
)
def test_every_way_of_asking(host: dict[str, Any], env: str, names: tuple[str, ...], everything: bool) -> None:
    document = {"HostConfig": host, "Config": {"Env": [f"NVIDIA_VISIBLE_DEVICES={env}"]}}
    assert requested_devices(document) == RequestedDevices(names, everything)


@pytest.mark.parametrize(
    ("words", "names", "everything"),
    [
        (["--device", f"nvidia.com/gpu={UUID}"], (UUID,), False),
        ([f"--device=nvidia.com/gpu={UUID}"], (UUID,), False),
        (["--device", "/dev/fuse"], (), False),
        (["--gpus", "all"], (), True),
        (["--gpus", f'"device={UUID},0:1"'], (UUID, "0:1"), False),
        (["--device"], (), False),
    ],
)
def test_a_command_line_of_podman(words: list[str], names: tuple[str, ...], everything: bool) -> None:
    assert requested_devices({"Config": {"CreateCommand": ["podman", "run", *words]}}) == RequestedDevices(
        names, everything
    )


def test_nodes_and_volumes() -> None:
    devices = [{"PathOnHost": p} for p in ("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12", "/dev/null")]
    mounts = [{"Destination": "/var/run/nvidia-container-devices/" + UUID}]
    found = requested_devices({"HostConfig": {"Devices": devices}, "Mounts": mounts})
    assert found == RequestedDevices((UUID,), nodes=("/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"))


def test_a_container_without_anything_is_one() -> None:
    assert container({}, "docker") == Container("docker", "", "", "")


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ('{"Action":"destroy","Actor":{"Attributes":{"aliquot.reservation":"zz","name":"x"}}}', "zz"),
        ('{"Status":"remove","Attributes":{"aliquot.reservation":"yy"}}', "yy"),
        ('{"Status":"died","Attributes":{"aliquot.reservation":"yy"}}', ""),
        ('{"Action":"destroy","Actor":{"Attributes":{"name":"x"}}}', ""),
        ("[]", ""),
        ("not JSON", ""),
    ],
)
def test_a_removal_among_the_events(line: str, label: str) -> None:
    assert removed_reservation(line) == label
