"""CRDs of Harvester's kinds: they match the structs that are written and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds.harvester_peripherals import ALL_KINDS
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester import crd_validation as crd_rules

ROOT = Path(__file__).resolve().parents[5]


def properties(schema: dict[str, Any], *path: str) -> dict[str, Any]:
    for name in path:
        schema = schema["properties"][name]
    found: dict[str, Any] = schema.get("properties", {})
    return found


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: str(kind.__name__))
def test_each_field_of_a_struct_is_in_the_schema_and_no_other(kind: type[KubeObject]) -> None:
    schema = crds.schema(kind)
    for field in [each for each in msgspec.structs.fields(kind) if each.name in ("spec", "status")]:
        part = field.name
        wire = {each.encode_name for each in msgspec.structs.fields(field.type)}
        assert set(properties(schema, part)) == wire
        assert bool(schema["properties"][part].get("x-kubernetes-preserve-unknown-fields")) == (part == "status")


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: str(kind.__name__))
def test_a_spec_with_its_defaults_is_what_the_struct_writes(kind: type[KubeObject]) -> None:
    # An object that a user created is then not written again because of its empty fields.
    schema = crds.schema(kind)["properties"].get("spec", {})
    shown = {name: each["default"] for name, each in schema.get("properties", {}).items() if "default" in each}
    fixed = dict.fromkeys(crd_rules.IMMUTABLE_FIELDS.get(kind, ()), "")
    specs = [each for each in msgspec.structs.fields(kind) if each.name == "spec"]
    written = {name: value for each in specs for name, value in msgspec.to_builtins(each.type()).items()}
    written.pop("profileSpec", None)
    assert shown | fixed == written


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: str(kind.__name__))
def test_kubectl_explain_tells_every_field(kind: type[KubeObject]) -> None:
    def walk(schema: dict[str, Any]) -> None:
        for name, each in schema.get("properties", {}).items():
            assert each.get("description", "").endswith("."), name
            walk(each.get("items", each))

    for part in ("spec", "status"):
        walk(crds.schema(kind)["properties"].get(part, {}))


def test_each_column_shows_a_field_that_there_is() -> None:
    for kind in ALL_KINDS:
        for _, path in crd_rules.COLUMNS[kind]:
            _, part, name = path.split(".")
            assert name in properties(crds.schema(kind), part)


def test_a_rule_about_a_field_that_there_is_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, SRIOVGPUDeviceSpec

    monkeypatch.setitem(crd_rules.FIELD_RULES, SRIOVGPUDeviceSpec, {"adress": {"maxLength": 16}})
    with pytest.raises(LookupError, match="adress"):
        crds.schema(SRIOVGPUDevice)


@pytest.mark.parametrize("folder", ["crds", "helm/aliquot/crds"])
def test_the_files_are_the_definitions(folder: str) -> None:
    texts = [path.read_text() for path in sorted((ROOT / "deploy" / folder).iterdir())]
    written = {item["metadata"]["name"]: item for text in texts for item in yaml.safe_load_all(text)}
    assert written == {item["metadata"]["name"]: item for item in crds.all_definitions()}
