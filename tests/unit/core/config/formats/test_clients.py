"""mig-manager's clients.yaml."""

from __future__ import annotations

import pytest

from aliquot.core.config.formats.gpu_clients import DEFAULT, load_clients
from aliquot.errors import ConfigError

SHIPPED = """\
version: v1
systemd-services:
  - nvsm.service
  - nvsm-mqtt.service
  - nvsm-core.service
  - nvsm-api-gateway.service
  - nvsm-notifier.service
  - nv_peer_mem.service
  - nvidia-dcgm.service
  - dcgm.service
  - dcgm-exporter.service
"""
"""The sample of the GPU Operator's documentation."""


def test_the_shipped_list_is_the_default() -> None:
    assert load_clients(SHIPPED, "clients.yaml") == load_clients(None, "nothing") == DEFAULT


def test_suffixes_are_added_and_each_stops_once() -> None:
    text = 'version: "v1"\nsystemd-services: [dcgm, dcgm.service, my.own, probe@gpu0.service, probe.socket]'
    units = ("dcgm.service", "my.own.service", "probe@gpu0.service", "probe.socket")
    assert load_clients(text, "f") == units


@pytest.mark.parametrize("text", ["version: v1\nsystemd-services: []", "version: v1\nsystemd-services:"])
def test_nothing_to_stop(text: str) -> None:
    assert load_clients(text, "f") == ()


FAULTS = [
    ("", "is not a list of GPU clients"),
    ("- dcgm", "is not a list of GPU clients"),
    ("systemd-services: []", "f:1:1: the version must be v1"),
    ("version: v2\nsystemd-services: []", "f:1:10: the version must be v1"),
    ("version: v1", "the key 'systemd-services' is missing"),
    ("version: v1\nsystemd-service: []", "did you mean systemd-services?"),
    ("version: v1\nsystemd-services: dcgm", "must be a list of names, not the text 'dcgm'"),
    ("version: v1\nsystemd-services: [{a: b}]", "a service must be text, not a mapping"),
    ("version: v1\nsystemd-services: [7]", 'write it in quotes, "7"'),
    ("version: v1\nsystemd-services: ['a b']", "'a b' is not the name of a systemd unit"),
    ("version: v1\nsystemd-services: ['../x']", "is not the name of a systemd unit"),
    ("version: v1\nsystemd-services: ['nv*']", "is not the name of a systemd unit"),
    ("version: v1\nsystemd-services: ['']", "'' is not the name of a systemd unit"),
    ("version: v1\nsystemd-services: [.service]", "is not the name of a systemd unit"),
    ("version: v1\nsystemd-services: [gpu.target]", "'gpu.target' is a target"),
    ("version: v1\nsystemd-services: [probe@]", "name the instance, probe@NAME.service"),
    ("version: v1\nversion: v1\nsystemd-services: []", "written twice"),
]


@pytest.mark.parametrize(("text", "output"), FAULTS)
def test_faults(text: str, output: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_clients(text, "f")
    assert output in "\n".join((caught.value.brief, *caught.value.details))


def test_all_faults_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load_clients("version: 1\nsystemd-services: [a b, x.mount]\nmore: 1", "f")
    assert len(caught.value.details) == 4
