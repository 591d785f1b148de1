"""The Terraform example creates VMs that KubeVirt accepts and that request a vGPU from the kubelet."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import hcl2
import pytest
import yaml

from support.cluster import Cluster
from support.kubevirt.players import VmCluster

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy/examples/terraform"
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
GIVEN: dict[str, Any] = {"gpu_resource": RESOURCE, "machines": 2}
MACHINES = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines"
_WHOLE = re.compile(r"\$\{([a-z_.]+)\}")


HARVESTER = "harvester/main.tf"
SCHEMA = {
    "": {"name", "namespace", "run_strategy", "machine_type", "cpu", "memory"},
    "host_device": {"name", "device_name"},
    "disk": {"name", "type", "bus", "boot_order", "size", "image", "auto_delete"},
    "network_interface": {"name"},
}
"""Attributes of ``harvester_virtualmachine`` that the example may use, by block.

Source: harvester/terraform-provider-harvester v1.9.0-rc3, docs/resources/virtualmachine.md.
"""


@cache
def read(name: str) -> dict[str, Any]:
    with (EXAMPLE / name).open() as file:
        found: dict[str, Any] = hcl2.load(file)
    return found


def bare(value: Any) -> Any:
    """Return keys and texts without the quotes that the parser leaves."""
    if isinstance(value, dict):
        return {bare(key): bare(each) for key, each in value.items() if key not in ("__is_block__", "__comments__")}
    if isinstance(value, list):
        return [bare(each) for each in value]
    return value[1:-1] if isinstance(value, str) and value[:1] == value[-1:] == '"' else value


def resource() -> dict[str, Any]:
    (block,) = bare(read("main.tf")["resource"])
    found: dict[str, Any] = block["kubernetes_manifest"]["machine"]
    return found


def defaults() -> dict[str, Any]:
    rows = bare(read("variables.tf")["variable"])
    return {name: body["default"] for row in rows for name, body in row.items() if "default" in body}


def resolved(value: Any, known: dict[str, Any]) -> Any:
    """Replace ``${...}`` by ``known``."""
    if isinstance(value, dict):
        return {key: resolved(each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [resolved(each, known) for each in value]
    if not isinstance(value, str):
        return value
    whole = _WHOLE.fullmatch(value)
    return known[whole[1]] if whole else _WHOLE.sub(lambda found: str(known[found[1]]), value)


def manifests() -> list[dict[str, Any]]:
    """Return what Terraform would send for two VMs."""
    variables = {f"var.{name}": value for name, value in (defaults() | GIVEN).items()}
    return [resolved(resource()["manifest"], variables | {"count.index": n}) for n in range(int(GIVEN["machines"]))]


def test_machines_are_made_and_ask_kubelet_for_a_vgpu(cluster: Cluster) -> None:
    environment = VmCluster(cluster)
    entry = {"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": RESOURCE, "externalResourceProvider": True}
    environment.install({"mediatedDevices": [entry]})
    for manifest in manifests():
        made = cluster.must("POST", f"{MACHINES}?fieldValidation=Strict", manifest)
        assert made["spec"] == manifest["spec"]
    assert [manifest["metadata"]["name"] for manifest in manifests()] == ["vgpu-0", "vgpu-1"]
    environment.settle()
    pods = cluster.get("/api/v1/namespaces/default/pods")["items"]
    limits = [pod["spec"]["containers"][0]["resources"]["limits"] for pod in pods]
    assert [each[RESOURCE] for each in limits] == ["1", "1"]
    environment.close()


def test_what_admission_and_agents_write_is_no_drift() -> None:
    computed = set(resource()["computed_fields"])
    devices = "spec.template.spec.domain.devices"
    assert {"metadata.annotations", f"{devices}.gpus", f"{devices}.hostDevices"} <= computed


def test_the_page_types_variables_that_there_are() -> None:
    page = (EXAMPLE / "README.md").read_text()
    names = {name for row in bare(read("variables.tf")["variable"]) for name in row}
    harvester = {name for row in bare(read("harvester/variables.tf")["variable"]) for name in row}
    assert set(re.findall(r"-var '?(\w+)=", page)) <= names | harvester
    assert set(re.findall(r"-var '?(\w+)=", (EXAMPLE / "main.tf").read_text())) <= names
    assert set(re.findall(r"-var '?(\w+)=", (EXAMPLE / HARVESTER).read_text())) <= harvester


def test_harvesters_provider_gets_what_its_schema_has() -> None:
    (block,) = bare(read(HARVESTER)["resource"])
    body = block["harvester_virtualmachine"]["machine"]
    blocks = {name: each[0] for name, each in body.items() if isinstance(each, list) and name != "lifecycle"}
    assert set(blocks) == set(SCHEMA) - {""}
    assert set(body) - set(blocks) - {"count", "lifecycle"} == SCHEMA[""]
    assert all(set(each) <= SCHEMA[name] for name, each in blocks.items())
    assert blocks["host_device"]["device_name"] == "${var.gpu_resource}"
    used = set(re.findall(r"\bvar\.(\w+)", (EXAMPLE / HARVESTER).read_text()))
    assert used == {name for row in bare(read("harvester/variables.tf")["variable"]) for name in row}


@pytest.mark.skipif(shutil.which("terraform") is None, reason="the terraform command is missing")
def test_terraform_itself_makes_the_same_of_it(tmp_path: Path) -> None:
    # Its provider for Kubernetes is not available, so the manifest is an output instead.
    text = (EXAMPLE / "main.tf").read_text()
    manifest = text[text.index("manifest = {") : text.index("\n  # What others write")]
    each = manifest.removeprefix("manifest = ").replace("count.index", "number")
    (tmp_path / "variables.tf").write_text((EXAMPLE / "variables.tf").read_text())
    (tmp_path / "main.tf").write_text(f'output "made" {{\n  value = [for number in range(var.machines) : {each}]\n}}\n')
    values = [word for name, value in GIVEN.items() for word in ("-var", f"{name}={value}")]
    for words in (["init"], ["apply", "-auto-approve", *values]):
        done = subprocess.run(["terraform", *words, "-no-color"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(["terraform", "output", "-json", "made"], cwd=tmp_path, capture_output=True, text=True)
    assert json.loads(done.stdout) == yaml.safe_load(json.dumps(manifests()))
    formatted = subprocess.run(
        ["terraform", "fmt", "-check", "-recursive", str(EXAMPLE)], capture_output=True, text=True
    )
    assert formatted.returncode == 0, formatted.stdout


@pytest.mark.skipif(shutil.which("terraform") is None, reason="the terraform command is missing")
def test_a_type_in_the_place_of_a_resource_is_refused(tmp_path: Path) -> None:
    # Nothing is requested of the cluster with an impossible name.
    (tmp_path / "variables.tf").write_text((EXAMPLE / "variables.tf").read_text())
    words = ["terraform", "plan", "-no-color", "-var", "gpu_resource=NVIDIA A2-4Q"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "A resource is called VENDOR/NAME" in done.stderr
