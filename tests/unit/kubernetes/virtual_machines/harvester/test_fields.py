"""Harvester's fields, columns, labels and words by release (``recorded/harvester-fields``): each row is served."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from aliquot.kubernetes.manifests import toolkit
from aliquot.kubernetes.manifests.values import Values
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One, ready
from unit.kubernetes.virtual_machines.harvester.test_claim_objects import claim, release
from unit.kubernetes.virtual_machines.harvester.test_mig_objects import cut, give_up

HERE = Path(__file__).parent
ROOT = HERE.parents[4]
DATA: JSON = yaml.safe_load((ROOT / "tests/recorded/harvester-fields/fields.yaml").read_text())
UI: JSON = yaml.safe_load((ROOT / "tests/recorded/harvester-ui/requests.yaml").read_text())
PAGE = (ROOT / "docs/harvester.md").read_text()
Written = dict[tuple[str, str], set[str]]
PCI, L40S, A100 = "0000:08:00.0", "0000:26:00.0", "0000:04:00.0"
SCHEMAS = {each["spec"]["names"]["kind"]: each["spec"]["versions"][0] for each in crds.definitions()}
IN_SCHEMA, IN_RUN = ("kind", "field", "column"), ("label", "annotation", "finalizer", "owner", "word", "field")
BY_USERS = ("spec.disableResourcePooling",)
"""Fields that no agent writes."""


class Row(NamedTuple):
    """A row of the table. ``of`` is who serves it, "" if we do."""

    what: str
    kind: str
    key: str
    release: str
    test: str
    of: str
    field: str

    def __str__(self) -> str:
        return f"{self.what} {self.kind} {self.key}".replace(" ", "-")


ROWS = tuple(
    Row(g["what"], g.get("kind", ""), key, since, g["test"], g.get("of", ""), g.get("field", ""))
    for g in DATA["groups"]
    for key, since in g["rows"].items()
)


def in_schema(row: Row) -> bool:
    kind = row.key if row.what == "kind" else row.kind
    return row.what in IN_SCHEMA and (not row.of or kind in SCHEMAS)


def in_run(row: Row) -> bool:
    """Report whether the run of this file writes it: only what we serve, and no kinds of a cluster."""
    return (
        row.what in IN_RUN and not row.of and row.kind in SCHEMAS and row.key not in BY_USERS
        and (row.what == "field" or row.test.startswith("test_fields.py"))
    )  # fmt: skip


@pytest.mark.parametrize("row", [*filter(in_schema, ROWS)], ids=str)
def test_a_kind_a_field_or_a_column_is_in_our_definitions(row: Row) -> None:
    if row.what == "kind":
        assert row.key in SCHEMAS
    elif row.what == "column":
        assert row.key in [each["name"] for each in SCHEMAS[row.kind]["additionalPrinterColumns"]]
    else:
        schema = SCHEMAS[row.kind]["schema"]["openAPIV3Schema"]
        for name in row.key.split("."):
            schema = schema.get("items", schema)["properties"][name]


@pytest.mark.parametrize("row", [*filter(in_run, ROWS)], ids=str)
def test_a_run_writes_it(row: Row, written: Written) -> None:
    what = f"{row.what} {row.field}" if row.field else row.what
    assert row.key in written[row.kind, what]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return what the agent writes in the three kernels and in all states of a layout, by kind and by sort of row."""
    found: Written = defaultdict(set)
    for one in histories(tmp_path_factory):
        for (kind, _), body in one.store.objects.items():
            _collect(found, kind, body)
    return found


def histories(factory: pytest.TempPathFactory) -> Iterator[One]:
    """Yield nodes after each step of a user."""
    a2 = One("a2:mdev", factory.mktemp("a2"), "n", PCI).settle()
    yield claim(a2)
    yield release(a2).kubectl("SRIOVGPUDevice", "n-000008000", enabled=True)
    yield a2.kubectl("VGPUDevice", "n-000008004", enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    l40s = One("l40s:vfio", factory.mktemp("l40s"), "n", L40S).settle()
    l40s.kubectl("SRIOVGPUDevice", "n-000026000", enabled=True)
    yield l40s.kubectl("VGPUDevice", "n-000026004", enabled=True, vGPUTypeName="NVIDIA L40S-12Q")
    a100 = One("a100-sxm4-40gb:mdev", factory.mktemp("a100"), "n", A100).settle()
    yield a100.kubectl("SRIOVGPUDevice", "n-000004000", enabled=True)
    yield cut(a100, {19: 2})
    a100.destroy_by_hand(A100, a100.mig(A100)["status"]["profileStatus"][0]["vGPUID"][0])
    yield a100.settle()
    yield give_up(a100)


def _collect(found: Written, kind: str, body: JSON) -> None:
    meta, status = body["metadata"], body.get("status", {})
    found[kind, "label"] |= meta.get("labels", {}).keys()
    found[kind, "annotation"] |= meta.get("annotations", {}).keys()
    found[kind, "finalizer"] |= set(meta.get("finalizers", ()))
    found[kind, "owner"] |= {each["kind"] for each in meta.get("ownerReferences", ())}
    found[kind, "field"] |= set(_paths({"spec": body["spec"], "status": status}))
    for field in ("status", "vGPUStatus"):
        found[kind, f"word {field}"].add(status.get(field, ""))


def _paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield f"{path}{key}"
            yield from _paths(each, f"{path}{key}.")
    elif isinstance(value, list):
        for each in value:
            yield from _paths(each, path)


def test_the_claim_of_the_page_passes_the_gpu_through(tmp_path: Path) -> None:
    one = One("a2:mdev", tmp_path, "n", PCI).settle()
    function = one.store.get("PCIDevice", "n-000008000")
    status = function["status"]
    filled = {"address": status["address"], "nodeName": status["nodeName"], "userName": "admin"}
    spec = {key: filled.get(key, False) for key in UI["claim"]["spec"]}
    owner = {**UI["claim"]["owner"], "name": "n-000008000", "uid": function["metadata"]["uid"]}
    head = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDeviceClaim"}
    meta = {"name": "n-000008000", "ownerReferences": [owner]}
    one.store.create("PCIDeviceClaim", {**head, "metadata": meta, "spec": spec})
    one.settle()
    assert ready(one.store.get("PCIDeviceClaim", "n-000008000")) == ("True", "PassedThrough")
    assert one.store.get("PCIDevice", "n-000008000")["status"]["resourceName"] == status["resourceName"]


def test_the_drivers_pod_can_read_the_choice_of_its_node() -> None:
    made = toolkit.objects(Values(), toolkit.DriverToolkit("image", "https://files/driver.run"))
    rules = [rule for each in made if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert [rule for rule in rules if rule["resources"] == ["nodes"] and "get" in rule["verbs"]]
    (pod,) = (each["spec"]["template"]["spec"] for each in made if each["kind"] == "DaemonSet")
    (variable,) = (v for c in pod["containers"] for v in c["env"] if v["name"] == "NODE_NAME")
    assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_every_row_has_a_known_release_and_a_test_that_exists() -> None:
    for row in ROWS:
        assert row.release in DATA["releases"], row
        file, _, name = row.test.partition("::")
        path = ROOT / file if file.startswith("tests/") else HERE / file
        tree = ast.parse(path.read_text())
        assert name in {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}, row
        proven = in_schema(row) or in_run(row) or not row.test.startswith("test_fields.py") or row.what == "request"
        assert proven or row.of or row.kind == "Node", row


def test_every_write_of_the_pages_has_a_row() -> None:
    assert {row.key for row in ROWS if row.what == "request"} == {*UI["writes"], "claim"}


def test_no_kind_of_harvester_has_a_column_of_ours_without_a_row() -> None:
    known = {(row.kind, row.key) for row in ROWS if row.what == "column"}
    kinds = [row.key for row in ROWS if row.what == "kind" and row.key in SCHEMAS]
    ours = {(kind, each["name"]) for kind in kinds for each in SCHEMAS[kind]["additionalPrinterColumns"]}
    assert ours <= known


def test_the_page_has_the_table() -> None:
    table = "\n".join(lines())
    assert table in PAGE, f"docs/harvester.md must have:\n{table}"


def lines() -> Iterator[str]:
    """Yield the lines of the page's table: what each release brought, for functions that we serve."""
    yield "| Harvester | pcidevices | new |"
    yield "|---|---|---|"
    for since, version in DATA["releases"].items():
        new: dict[str, list[str]] = defaultdict(list)
        for row in ROWS:
            if row.release == since and not row.of and row.key and row.what != "request":
                new[f"{row.what} of {row.kind}" if row.kind else row.what].append(f"`{row.key}`")
        kinds = new.pop("kind", [])
        parts = [f"kinds: {', '.join(kinds)}"] if kinds else []
        parts += [f"{what}: {', '.join(keys)}" for what, keys in new.items() if f"`{what.split()[-1]}`" not in kinds]
        yield f"| {since} | {version} | {'; '.join(parts) or 'nothing'} |"
