"""The Helm chart: its values, and where they go. Helm's output is tested in tests/system/kubernetes/test_helm.py."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parents[4] / "deploy/helm/aliquot"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
ACTION = re.compile(r"{{-?\s*(.*?)\s*-?}}", re.DOTALL)


def paths(value: Any, prefix: str = "") -> set[str]:
    """Return every path of a values file. Lists and empty mappings are leaves."""
    if not isinstance(value, dict) or not value:
        return {prefix}
    return {found for key, each in value.items() for found in paths(each, f"{prefix}.{key}")}


def described(schema: dict[str, Any], prefix: str = "") -> set[str]:
    if "properties" not in schema:
        return {prefix}
    return {p for key, each in schema["properties"].items() for p in described(each, f"{prefix}.{key}")}


def uses() -> set[str]:
    actions = [action for text in TEMPLATES.values() for action in ACTION.findall(text)]
    return {use for action in actions for use in re.findall(r"\.Values((?:\.\w+)+)", action)}


def test_what_people_set_today_has_its_name() -> None:
    known = (
        "mig.strategy migManager.enabled migManager.env driver.enabled migManager.config.name migManager.config.create "
        "migManager.config.data migManager.config.default migManager.gpuClientsConfig.name"
    )
    assert {f".{name}" for name in known.split()} <= paths(VALUES)
    assert VALUES["mig"]["strategy"] == "single"
    assert VALUES["migManager"]["config"]["default"] == "all-disabled"


def test_every_value_is_described_and_used() -> None:
    whole = {".migManager.resources", ".controller.resources", ".devices.resources", ".dashboard.resources"}
    whole |= {".vgpuDeviceManager.resources"}
    values = {next((w for w in whole if p.startswith(w)), p) for p in paths(VALUES)}
    assert described(SCHEMA) - {".global"} == values
    assert uses() == values


def test_templates_are_balanced() -> None:
    # Each block is closed in the file that opens it.
    for name, text in TEMPLATES.items():
        depth = 0
        for action in ACTION.findall(text):
            word = action.split()[0]
            depth += (word in ("if", "range", "with", "define")) - (word == "end")
            assert depth >= 0, name
        assert depth == 0, name


def test_the_namespace_is_the_releases() -> None:
    # No template contains the namespace of the plain manifests.
    assert not [name for name, text in TEMPLATES.items() if "gpu-operator" in text.lower().replace("gpu operator", "")]


def test_objects_of_the_chart_are_those_of_the_manifests() -> None:
    # Compares kinds and names of each file. Helm creates the namespace itself.
    head = re.compile(r"^kind: (\w+)\nmetadata:\n  name: (.+)$", re.MULTILINE)
    ternary = re.compile(r"""'{{ \(ternary "(\S+)" "(\S+)" \.Values\.besideOperator\) }}'""")
    machines = {path.name: path.read_text() for path in (CHART.parents[1] / "kubernetes-machines").rglob("*.yaml")}
    for group, folder in ((1, "kubernetes-beside-operator"), (2, "kubernetes")):
        plain = {path.name: path.read_text() for path in (CHART.parents[1] / folder).rglob("*.yaml")}
        for name in (plain.keys() | machines.keys()) - {"00-namespace.yaml"}:
            template = ternary.sub(rf"\{group}", TEMPLATES[name])
            wanted = {*head.findall(plain.get(name, "")), *head.findall(machines.get(name, ""))}
            assert set(head.findall(template)) == wanted, name


def test_every_value_has_its_line_in_the_installation_page() -> None:
    page = (CHART.parents[1] / "README.md").read_text()
    for path in described(SCHEMA) - {".global"}:
        assert f"`{path[1:]}`" in page, path
