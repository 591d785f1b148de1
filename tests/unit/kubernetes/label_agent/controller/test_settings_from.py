"""Conversion of a ClusterPolicy to settings."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.core.config import settings
from aliquot.kubernetes.client.objects import ClusterPolicy
from aliquot.kubernetes.label_agent.controller import cluster_policy_settings as settings_from


def policy(spec: dict[str, Any], name: str = "cluster-policy", state: str = "", made: str = "") -> ClusterPolicy:
    meta = {"name": name} | ({"creationTimestamp": made} if made else {})
    return msgspec.convert({"metadata": meta, "spec": spec, "status": {"state": state}}, ClusterPolicy)


VGPUS: dict[str, Any] = {
    "sandboxWorkloads": {"enabled": True},
    "vgpuDeviceManager": {"enabled": False, "config": {"name": "vgpus", "default": "A2-4Q"}},
}
FOLLOWED = {"vgpu_config_map": "vgpus", "vgpu_default_config": "A2-4Q"}


@pytest.mark.parametrize(
    ("enabled", "sandbox", "off"),
    [(False, True, False), (True, True, True), (True, False, False), (None, True, True)],
)
def test_the_operators_vgpu_device_manager(enabled: bool | None, sandbox: bool, off: bool) -> None:
    manager = VGPUS["vgpuDeviceManager"] | {"enabled": enabled}
    spec = {"sandboxWorkloads": {"enabled": sandbox}, "vgpuDeviceManager": manager}
    off_elsewhere = {"migManager": {"enabled": False}, "devicePlugin": {"enabled": False}, "gfd": {"enabled": False}}
    reported = settings_from.read_policy(policy(spec | off_elsewhere, state="ready"))
    assert reported.layer.values == FOLLOWED | ({"vgpu_manage": False} if off else {})
    assert [note.rpartition(": ")[2] for note in reported.notes] == (
        ["the operator runs its vGPU device manager, so Aliquot's vGPU agents change nothing"] if off else []
    )


def test_a_default_that_no_label_can_have_is_a_note() -> None:
    reported = settings_from.read_policy(policy({"vgpuDeviceManager": {"config": {"default": "two words"}}}))
    assert reported.layer.values == {}
    assert "DEFAULT_VGPU_CONFIG must be the value of a label, not 'two words'" in reported.notes[0]


CHART = {
    "mig": {"strategy": "mixed"},
    "migManager": {
        "enabled": True,
        "env": [{"name": "WITH_REBOOT", "value": "true"}, {"name": "OTHER", "value": "x"}],
        "config": {"name": "custom-mig-config", "default": ""},
        "gpuClientsConfig": {"name": "gpu-clients"},
    },
    "devicePlugin": {"enabled": True},
    "gfd": {"enabled": True},
    "driver": {"enabled": False},
    "cdi": {"enabled": False},
    "dcgm": {"enabled": True},
}


def test_what_the_operators_chart_writes() -> None:
    reported = settings_from.read_policy(policy(CHART))
    assert reported.layer == settings.Layer(
        "ClusterPolicy cluster-policy",
        {
            "strategy": "mixed",
            "with_reboot": True,
            "config_map": "custom-mig-config",
            "default_config": "",
            "clients_map": "gpu-clients",
            "stop_host_clients": True,
            "cdi": False,
            "device_plugin": False,
            "labels": False,
        },
    )
    assert reported.manager
    assert [note.rpartition("the operator runs its ")[2] for note in reported.notes] == [
        "device plugin, so that of Aliquot stays off",
        "gpu-feature-discovery, so that of Aliquot stays off",
        "MIG manager, which applies the same label: turn it off, or set mig.enabled to false in aliquot-settings",
    ]
    assert settings.merge((reported.layer,)).config_map == "custom-mig-config"


def test_what_is_not_given_is_not_shown() -> None:
    reported = settings_from.read_policy(policy({"mig": {"strategy": "single"}}))
    assert reported.layer.values == {"strategy": "single"}
    assert not reported.manager
    assert settings_from.read_policy(policy({})).layer.values == {}


def test_an_operator_that_is_there_runs_what_is_not_switched_off() -> None:
    there = settings_from.read_policy(policy({"gfd": {"enabled": False}}, state="ready"))
    assert there.manager
    assert there.layer.values == {"device_plugin": False}
    off = {"migManager": {"enabled": False}, "devicePlugin": {"enabled": False}, "gfd": {"enabled": False}}
    assert settings_from.read_policy(policy(off, state="ready")) == settings_from.PolicySettings(
        settings.Layer("ClusterPolicy cluster-policy")
    )


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        (
            {"mig": {"strategy": "mixd"}},
            "spec.mig.strategy: 'mixd' is ignored: use one of none, single, mixed (did you",
        ),
        (
            {"migManager": {"config": {"default": "all-enabled"}}},
            "spec.migManager.config.default: 'all-enabled' is ignored",
        ),
        ({"migManager": {"env": [{"name": "WITH_REBOOT", "value": "on"}]}}, "WITH_REBOOT must be true or false"),
    ],
)
def test_what_is_wrong_is_noted_and_the_rest_followed(spec: dict[str, Any], note: str) -> None:
    whole = spec | {"driver": {"enabled": False}}
    reported = settings_from.read_policy(policy(whole))
    assert reported.layer.values == {"stop_host_clients": True}
    assert len(reported.notes) == 1
    assert note in reported.notes[0]
    assert "is ignored" in reported.notes[0]


def test_the_oldest_that_counts_is_the_one() -> None:
    young = policy({}, "young", made="2026-02-01T00:00:00Z")
    old = policy({}, "old", made="2025-02-01T00:00:00Z")
    ignored = policy({}, "ignored", "ignored", "2024-02-01T00:00:00Z")
    assert settings_from.choose_policy([young, ignored, old]) == old
    assert settings_from.choose_policy([ignored]) is None
    assert settings_from.choose_policy([]) is None
