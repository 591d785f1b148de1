"""Refusals of ``aliquot controller`` for invalid webhook flags, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.cli.main import main

CONFIG = """
apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: x, user: x}}]
clusters: [{name: x, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: x, user: {}}]
"""


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBEVIRT_NAMESPACE", "WEBHOOK_PORT", "WEBHOOK_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_webhooks_without_virtual_machines_are_a_contradiction(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["controller", "--webhook-port", "8443"]) == 2
    reported = capsys.readouterr().err
    assert "--kubevirt-namespace is required" in reported
    assert "--kubevirt-namespace harvester-system" in reported


def test_a_certificate_folder_that_is_empty_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config"
    config.write_text(CONFIG)
    words = ["controller", "--kubeconfig", str(config), "--kubevirt-namespace", "kubevirt", "--port", "-1"]
    assert main([*words, "--webhook-port", "0", "--webhook-cert-dir", str(tmp_path)]) == 2
    reported = capsys.readouterr().err
    assert f"{tmp_path}/tls.crt: No such file or directory" in reported
    assert "omit --webhook-cert-dir" in reported


def test_a_port_from_the_environment_is_a_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The manifests pass it in this way.
    monkeypatch.setenv("WEBHOOK_PORT", "8443")
    assert main(["controller"]) == 2
    assert "--kubevirt-namespace is required" in capsys.readouterr().err
    monkeypatch.setenv("WEBHOOK_PORT", "https")
    assert main(["controller"]) == 2
    assert "WEBHOOK_PORT=https is not a number" in capsys.readouterr().err
