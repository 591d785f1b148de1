"""Harvester's pages, replayed: what they read and write is in ``recorded/harvester-ui/requests.yaml``."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import yaml

from support.devicesagent import API
from system.harvester.site import Site

JSON = dict[str, Any]
UI: JSON = yaml.safe_load((Path(__file__).parents[2] / "recorded/harvester-ui/requests.yaml").read_text())
CHOICE = "CHOICE"
ADDONS = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/addons"


def drawn(site: Site) -> set[str]:
    """Return the kinds whose page is drawn."""
    enabled = {a["metadata"]["name"] for a in site.cluster.get(ADDONS)["items"] if a["spec"]["enabled"]}
    return {each["kind"] for each in UI["pages"] if set(UI["needs"]) <= enabled}


def press(site: Site, button: str, name: str, choice: object = None) -> None:
    """Write what a button of a page writes. Raise AssertionError if it is refused."""
    answer = put(site, button, name, choice)
    assert answer.status == 200, f"{button} of {name}: {answer.status} {answer.body}"


def put(site: Site, button: str, name: str, choice: object = None) -> Any:
    """Read the whole object, change it, write it back, and return the answer of the API server."""
    write = UI["writes"][button]
    path = f"{API}/{write['kind']}s/{name}"
    body = copy.deepcopy(site.cluster.get(path))
    for field, value in write["set"].items():
        _set(body, _keys(field), choice if value == CHOICE else value)
    return site.cluster.request("PUT", path, body)


def missing(site: Site, kind: str, name: str) -> list[str]:
    """Return the recorded fields that a page reads and that an object does not have."""
    body = site.cluster.get(f"{API}/{kind}s/{name}")
    (reads,) = (each for each in UI["reads"] if each["kind"] == kind)
    wanted = [*reads["paths"], *(reads["when_enabled"] if body.get("spec", {}).get("enabled") else ())]
    return [field for field in wanted if _get(body, _keys(field)) is None]


def offered_to_vms(site: Site) -> list[JSON]:
    """Return the entries of ``gpus`` that the VM form writes: one for each enabled vGPU."""
    form = UI["vm"]
    found = [each for each in site.all("vgpudevices") if each["spec"]["enabled"]]
    texts = {each["metadata"]["name"]: str(_get(each, _keys(form["name_of"]))) for each in found}
    return [{"name": n, "deviceName": form["device_name"] + re.sub(r"\s+", "_", text)} for n, text in texts.items()]


def _keys(field: str) -> list[str]:
    return [bracketed or plain for bracketed, plain in re.findall(r"\[([^\]]+)\]|([^.\[\]]+)", field)]


def _get(body: Any, keys: list[str]) -> Any:
    for key in keys:
        body = body.get(key) if isinstance(body, dict) else None
    return body


def _set(body: JSON, keys: list[str], value: object) -> None:
    *folders, last = keys
    for key in folders:
        if value is None and key not in body:
            return
        body = body.setdefault(key, {})
    if value is None:
        body.pop(last, None)
    else:
        body[last] = value
