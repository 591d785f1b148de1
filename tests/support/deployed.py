"""The parts of a rendered DaemonSet that the agent's container gets, on a node that is a folder of a test.

Arguments, environment, mounted files and the account are read from ``deploy``: a test, a sandbox or a page that starts
an agent with hand-written ones proves nothing about an installation.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from support.cluster import Cluster
from support.standin.kubeconfig import kubeconfig

Object = dict[str, Any]
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
AGENT = "kubernetes/30-agent.yaml"
CLAIMS = "kubernetes/optional/claims.yaml"
ALL_DEVICES = "kubernetes-machines/optional/all-devices.yaml"
VGPUS = "optional/vgpus.yaml"
EVICTIONS = "kubernetes/optional/evictions.yaml"
_RIGHTS = ("10-accounts.yaml", "11-rights.yaml", "12-admission.yaml")
_RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"


@functools.cache
def objects(file: str) -> tuple[Object, ...]:
    """Return the objects of a file below ``deploy``. Do not change them."""
    return tuple(yaml.load_all((DEPLOY / file).read_text(), yaml.CSafeLoader))


class Deployed:
    """The pod that a DaemonSet, rendered as ``manifest``, creates on ``node``. ``folder`` is the node's file system."""

    def __init__(self, manifest: str, node: str, folder: Path) -> None:
        self.node, self.folder = node, folder
        self._folder = manifest.partition("/")[0]
        self._manifest = manifest
        (daemon_set,) = (each for each in objects(manifest) if each["kind"] == "DaemonSet")
        meta, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        self.name, self.namespace = f"{meta['name']}-{node}", meta["namespace"]
        self._spec, self._labels = template["spec"], template["metadata"]["labels"]
        (self._container,) = self._spec["containers"]
        self.uid = ""
        self.account: str = self._spec["serviceAccountName"]

    # -- the container

    def words(self) -> list[str]:
        """Return the arguments."""
        return [self._inside(word) for word in self._container["args"]]

    def environment(self) -> dict[str, str]:
        """Return the variables. Paths lead to what is mounted there."""
        fields = {"spec.nodeName": self.node, "metadata.name": self.name, "metadata.namespace": self.namespace}
        fields["metadata.uid"] = self.uid
        found = {}
        for entry in self._container["env"]:
            source = entry.get("valueFrom")
            found[entry["name"]] = fields[source["fieldRef"]["fieldPath"]] if source else self._inside(entry["value"])
        return found

    def mount(self) -> None:
        """Create the folders, and the files of the ConfigMaps, that are mounted."""
        for volume in self._spec["volumes"]:
            there = self.folder / volume["name"]
            if there.exists():
                continue
            there.mkdir(parents=True)
            for name, text in self._map(volume.get("configMap", {}).get("name", "")).items():
                (there / name).write_text(text)

    def _map(self, name: str) -> dict[str, str]:
        maps = objects(f"{self._folder}/20-configmaps.yaml")
        return next((each["data"] for each in maps if each["metadata"]["name"] == name), {})

    def _inside(self, text: str) -> str:
        """Return the host path of what is mounted at a path in the container."""
        for mount in self._container["volumeMounts"]:
            path = mount["mountPath"]
            if text == path or text.startswith(f"{path}/"):
                return str(self.folder / mount["name"]) + text[len(path) :]
        return text

    # -- the cluster

    def install(self, cluster: Cluster) -> None:
        """Apply the accounts, rights and admission policies, unless they exist."""
        cluster.namespace(self.namespace)
        if cluster.request("GET", f"{_RBAC}/{self.account}").status == 404:
            apply(cluster, *(f"{self._folder}/{name}" for name in _RIGHTS))
        if self._manifest == CLAIMS:
            apply(cluster, CLAIMS)

    def token(self, cluster: Cluster) -> str:
        """Return the token that the kubelet would mount into the pod. Create the pod unless it exists."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        if cluster.request("GET", f"{pods}/{self.name}").status == 404:
            container = {"name": self._container["name"], "image": self._container["image"]}
            spec = {"nodeName": self.node, "serviceAccountName": self.account, "containers": [container]}
            meta = {"name": self.name, "labels": self._labels}
            cluster.must("POST", pods, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
            ready = {"type": "Ready", "status": "True"}
            status = {"phase": "Running", "conditions": [ready]}
            cluster.must("PATCH", f"{pods}/{self.name}/status", {"status": status})
        self.uid = cluster.get(f"{pods}/{self.name}")["metadata"]["uid"]
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.name, "uid": self.uid}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.account}/token"
        return str(cluster.must("POST", path, {"spec": {"boundObjectRef": bound}})["status"]["token"])

    def kubeconfig(self, cluster: Cluster) -> Path:
        """Write a kubeconfig with that token."""
        file = self.folder / "kubeconfig"
        token = self.token(cluster)
        file.write_text(kubeconfig(cluster.url, token, ca=str(cluster.ca), namespace=self.namespace, user=self.account))
        return file


def apply(cluster: Cluster, *files: str) -> None:
    """Apply files below ``deploy``, as an administrator does."""
    found: Iterable[Object] = (each for file in files for each in objects(file))
    cluster.apply(list(found))
