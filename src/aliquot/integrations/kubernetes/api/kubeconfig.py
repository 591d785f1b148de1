"""Which API server, and as whom: an explicit file, else the pod's service account, else KUBECONFIG or ~/.kube/config.

The client library reads one file and knows neither several files in KUBECONFIG, nor ``proxy-url``, ``tls-server-name``,
impersonation or exec plugins of ``client.authentication.k8s.io/v1``: those are read here, the rest is the library's.
Rules (who wins, what a path is relative to): Kubernetes' "Organizing Cluster Access Using kubeconfig Files".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import Cluster, User
from lightkube.core.exceptions import ConfigError as LibraryError

from aliquot.errors import ConfigError
from aliquot.integrations.kubernetes.api.errors import ApiError

_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}


class NoClusterError(ApiError):
    """Nothing on this machine says where an API server is."""

    code = "KUBERNETES_NO_CLUSTER"


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials. Source: ``client.authentication.k8s.io/v1``, ExecConfig."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: tuple[str, ...] | None = None
    env: tuple[dict[str, str], ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class Access(msgspec.Struct, frozen=True):
    """Everything that is needed to open a connection. ``source`` is the file that said so."""

    source: str
    config: SingleConfig
    plugin: ExecPlugin | None = None
    proxy: str = ""
    server_name: str = ""
    act_as: tuple[tuple[str, str], ...] = ()

    @property
    def server(self) -> str:
        return self.config.cluster.server.rstrip("/")

    @property
    def user(self) -> User:
        return self.config.user or User()

    @property
    def cluster(self) -> Cluster:
        return self.config.cluster

    @property
    def namespace(self) -> str:
        return self.config.namespace.strip() or "default"


def find(kubeconfig: str | None = None, env: Mapping[str, str] = os.environ, account: str = SERVICE_ACCOUNT) -> Access:
    """Raises ConfigError for a file that is there but wrong, NoClusterError if there is none."""
    if kubeconfig is not None:
        return from_files([kubeconfig])
    if env.get("KUBERNETES_SERVICE_HOST") and os.path.exists(os.path.join(account, "token")):
        return _in_cluster(env, account)
    named = [path for path in env.get("KUBECONFIG", "").split(os.pathsep) if path]
    files = named or [os.path.join(env.get("HOME", "/"), ".kube/config")]
    present = [path for path in files if os.path.exists(path)]
    if not present:
        raise NoClusterError(
            "nothing here says where the Kubernetes API server is: this is no pod with a service account, and "
            f"{' and '.join(files)} does not exist",
            next_step="export KUBECONFIG=/path/to/kubeconfig",
        )
    return from_files(present)


def from_files(paths: list[str]) -> Access:
    """The current context of these files together: of two entries of one name the first wins. Raises ConfigError."""
    merged: dict[str, Any] = {}
    for path in paths:
        for key, value in _read(path).items():
            if isinstance(value, list):
                known = {entry["name"] for entry in merged.setdefault(key, [])}
                merged[key] += [entry for entry in value if entry["name"] not in known]
            elif value:
                merged.setdefault(key, value)
    try:
        return _access(merged, os.pathsep.join(paths))
    except LibraryError as error:
        raise _wrong(paths, str(error)) from error
    except KeyError as error:
        raise _wrong(paths, f"there is no entry {error}") from error
    except (TypeError, ValueError) as error:
        raise _wrong(paths, str(error)) from error


def _access(merged: dict[str, Any], source: str) -> Access:
    merged.setdefault("clusters", [])
    merged.setdefault("contexts", [])
    config = KubeConfig.from_dict(merged, fname="/").get()
    if config is None:
        raise KeyError("current-context")
    cluster = _entry(merged, "clusters", "cluster", config.context.cluster)
    user = _entry(merged, "users", "user", config.context.user or "")
    if user.get("auth-provider"):
        raise ValueError("auth-provider was removed from Kubernetes in 1.26: use an exec plugin")
    plugin = msgspec.convert(user["exec"], ExecPlugin) if user.get("exec") else None
    act_as = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    act_as += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    return Access(
        source, config, plugin, cluster.get("proxy-url") or "", cluster.get("tls-server-name") or "", tuple(act_as)
    )


def _entry(merged: dict[str, Any], many: str, one: str, name: str) -> dict[str, Any]:
    return next((entry.get(one) or {} for entry in merged.get(many) or () if entry["name"] == name), {})


def _read(path: str) -> dict[str, Any]:
    """One file, its relative paths made absolute."""
    found: Any
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", next_step=f"ls -l {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _wrong([path], " ".join(str(error).split())) from error
    if not isinstance(found, dict):
        raise _wrong([path], "it holds no mapping")
    return _anchored(found, path)


def _anchored(found: dict[str, Any], path: str) -> dict[str, Any]:
    here = os.path.dirname(os.path.abspath(path))
    for one, many in (("cluster", "clusters"), ("context", "contexts"), ("user", "users")):
        for entry in found.get(many) or ():
            if not isinstance(entry, dict) or "name" not in entry:
                raise _wrong([path], f"an entry of {many} has no name")
            entry[one] = _absolute(entry.get(one) or {}, here, _FILES.get(one, ()))
    return found


def _absolute(part: dict[str, Any], here: str, keys: tuple[str, ...]) -> dict[str, Any]:
    moved: dict[str, Any] = {key: os.path.normpath(os.path.join(here, part[key])) for key in keys if part.get(key)}
    plugin = part.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
        moved["exec"] = {**plugin, "command": os.path.normpath(os.path.join(here, plugin["command"]))}
    return {**part, **moved}


def _in_cluster(env: Mapping[str, str], account: str) -> Access:
    """A pod's service account. The token file is read again and again: the kubelet renews it every hour or so."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        with open(os.path.join(account, "namespace"), encoding="utf-8") as file:
            namespace = file.read().strip()
    except OSError:
        namespace = "default"
    config = KubeConfig.from_one(
        cluster=Cluster(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            certificate_auth=os.path.join(account, "ca.crt"),
        ),
        user=User(token_file=os.path.join(account, "token")),
        namespace=namespace,
    ).get()
    assert config is not None  # from_one names its own context
    return Access(account, config)


def _wrong(paths: list[str], why: str) -> ConfigError:
    shown = os.pathsep.join(paths)
    return ConfigError(f"{shown} is no usable kubeconfig: {why}", next_step=f"KUBECONFIG={shown} kubectl config view")
