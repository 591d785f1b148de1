"""Settings that apply to a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.core.config.settings import AgentSettings, merge
from aliquot.foundation.state_store import StateFile
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.managed_label import MIG, VGPU, ManagedLabel
from aliquot.kubernetes.label_agent.agent.last_settings import FILE, LastSettings, Texts
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup, layers

POLICY = {names.SETTINGS_KEY: "version: aliquot/v1\ndevice-plugin: {enabled: false}\nlabels: {enabled: false}\n"}
OURS = {names.SETTINGS_KEY: "version: aliquot/v1\ndevice-plugin: {enabled: false}\n"}
GOOD: dict[str, dict[str, str] | None] = {
    names.SETTINGS_MAP: {names.SETTINGS_KEY: "version: aliquot/v1\nmig: {strategy: mixed}"}
}
UNAVAILABLE = {f"{names.DEPLOY_PREFIX}device-plugin": "false"}


def test_ours_is_off_exactly_where_the_operators_runs() -> None:
    answer, _, _ = layers(AgentSetup("n"), {names.EFFECTIVE_MAP: POLICY}, LastSettings(), {})
    assert not merge(answer).device_plugin
    answer, _, _ = layers(AgentSetup("n"), {names.EFFECTIVE_MAP: POLICY}, LastSettings(), UNAVAILABLE)
    assert merge(answer).device_plugin
    assert not merge(answer).labels


def test_what_a_policy_says_about_the_mig_manager_is_not_about_vgpus() -> None:
    text = "version: aliquot/v1\nmig: {with-reboot: true}\nhost-clients: {stop: true}\nvgpu: {default-config: A2-4Q}\n"
    maps = {name: {names.SETTINGS_KEY: text} for name in (names.EFFECTIVE_MAP, names.SETTINGS_MAP)}

    def merged(managed: ManagedLabel, *known: str) -> AgentSettings:
        found, _, _ = layers(AgentSetup("n", managed=managed), {k: maps[k] for k in known}, LastSettings(), {})
        return merge(found)

    mig, vgpu = (merged(each, names.EFFECTIVE_MAP) for each in (MIG, VGPU))
    assert (mig.with_reboot, mig.stop_host_clients) == (True, True)
    assert (vgpu.with_reboot, vgpu.stop_host_clients, vgpu.vgpu_default_config) == (False, False, "A2-4Q")
    ours = merged(VGPU, names.SETTINGS_MAP)
    assert (ours.with_reboot, ours.stop_host_clients) == (True, True), "an administrator's own settings count"


def test_what_our_own_settings_switch_off_stays_off() -> None:
    answer, _, _ = layers(AgentSetup("n"), {names.SETTINGS_MAP: OURS}, LastSettings(), UNAVAILABLE)
    assert not merge(answer).device_plugin


def test_the_last_good_text_holds_and_the_fault_is_reported() -> None:
    last = LastSettings()
    layers(AgentSetup("n"), GOOD, last, {})
    bad = {names.SETTINGS_MAP: {names.SETTINGS_KEY: "version: aliquot/v1\nmig: {strategy: mixd}"}}
    answer, faults, unclear = layers(AgentSetup("n"), bad, last, {})
    assert merge(answer).strategy == "mixed"
    assert not faults
    assert "mixd" in unclear[0]
    _, faults, unclear = layers(AgentSetup("n"), bad, LastSettings(), {})
    assert faults
    assert not unclear


def test_the_last_good_text_holds_for_the_next_agent(tmp_path: Path) -> None:
    # This excludes the text of a ConfigMap that is empty now. The text of one that was not read yet is kept.
    layers(AgentSetup("n"), GOOD, LastSettings(str(tmp_path)), {})
    bad = {names.SETTINGS_MAP: {names.SETTINGS_KEY: "version: aliquot/v1\ntimes: {check-seconds: 2}"}}
    layers(AgentSetup("n"), {}, LastSettings(str(tmp_path)), {})
    answer, faults, unclear = layers(AgentSetup("n"), bad, LastSettings(str(tmp_path)), {})
    assert (merge(answer).strategy, faults, len(unclear)) == ("mixed", [], 1)
    layers(AgentSetup("n"), {names.SETTINGS_MAP: None}, LastSettings(str(tmp_path)), {})
    _, faults, unclear = layers(AgentSetup("n"), bad, LastSettings(str(tmp_path)), {})
    assert (len(faults), unclear) == (1, ())


def test_starting_writes_nothing_and_keeps_what_another_version_understood(tmp_path: Path) -> None:
    last = LastSettings(str(tmp_path))
    last.read("one", "version: aliquot/v1\nmig: {strategy: mixed}")
    last.read("two", "version: aliquot/v1\nmig: {strategy: none}")
    path = tmp_path / FILE
    store = StateFile(str(path), "last-settings", Texts, Texts())
    store.save(Texts({"one": "version: aliquot/v9", "two": "version: aliquot/v1\nmig: {strategy: none}"}))
    before = path.read_bytes()
    last = LastSettings(str(tmp_path))
    assert path.read_bytes() == before
    assert last.read("one", "version: aliquot/v9")[0] is None
    last.read("three", "version: aliquot/v1\nmig: {strategy: single}")
    assert set(store.load().texts) == {"one", "two", "three"}


def test_settings_hold_although_they_cannot_be_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).mkdir()
    answer, faults, _ = layers(AgentSetup("n"), GOOD, LastSettings(str(tmp_path)), {})
    assert (merge(answer).strategy, faults) == ("mixed", [])
    assert "the next agent cannot fall back to these settings" in caplog.text
