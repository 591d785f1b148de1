"""Server and user of the API client: from a given file, the pod's service account, KUBECONFIG or ~/.kube/config.

Source: Kubernetes documentation, "Organizing Cluster Access Using kubeconfig Files" (precedence, relative paths).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from aliquot.errors import ConfigError
from aliquot.kubernetes.client.errors import ApiError

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_FILES = {"cluster": ("certificate-authority",), "user": ("client-certificate", "client-key", "tokenFile")}


class NoClusterError(ApiError):
    """This host has neither a kubeconfig nor a pod's service account."""

    code = "KUBERNETES_NO_CLUSTER"


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials. Source: ``client.authentication.k8s.io/v1``, ExecConfig."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: tuple[str, ...] | None = None
    env: tuple[dict[str, str], ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Address and certificate authority of the API server. Fields in ``_data`` are base64 of PEM and override files."""

    server: str = "http://localhost:8080"
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """Credentials in the kubeconfig itself."""

    username: str | None = None
    password: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str | None = None
    namespace: str | None = None


class ClusterAccess(msgspec.Struct, frozen=True):
    """Data for a connection to a cluster."""

    source: str
    """File or directory that the data come from."""
    cluster: KubeconfigCluster
    user: KubeconfigUser = KubeconfigUser()
    namespace: str = "default"
    plugin: ExecPlugin | None = None
    proxy: str = ""
    server_name: str = ""
    impersonation_headers: tuple[tuple[str, str], ...] = ()

    @property
    def server(self) -> str:
        return self.cluster.server.rstrip("/")


def find_access(
    kubeconfig: str | None = None, env: Mapping[str, str] = os.environ, account: str = SERVICE_ACCOUNT
) -> ClusterAccess:
    """Find the cluster to connect to. Raises ConfigError if a file is invalid, NoClusterError if there is none."""
    if kubeconfig is not None:
        return from_files([kubeconfig])
    if env.get("KUBERNETES_SERVICE_HOST") and os.path.exists(os.path.join(account, "token")):
        return _in_cluster(env, account)
    named = [path for path in env.get("KUBECONFIG", "").split(os.pathsep) if path]
    files = named or [os.path.join(env.get("HOME", "/"), ".kube/config")]
    present = [path for path in files if os.path.exists(path)]
    if not present:
        raise NoClusterError(
            "no Kubernetes API server is configured: this is not a pod with a service account, and "
            f"{' and '.join(files)} does not exist",
            next_step="export KUBECONFIG=/path/to/kubeconfig",
        )
    return from_files(present)


def from_files(paths: list[str]) -> ClusterAccess:
    """Merge the files and read their current context; the first entry of a name wins. Raises ConfigError."""
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
    except (TypeError, ValueError) as error:
        raise _config_error(paths, str(error)) from error


def _access(merged: dict[str, Any], source: str) -> ClusterAccess:
    current = merged.get("current-context")
    if not current:
        raise ValueError("no current-context is set")
    context = msgspec.convert(_entry(merged, "context", current), _Context)
    cluster = _entry(merged, "cluster", context.cluster)
    user = _entry(merged, "user", context.user) if context.user else {}
    if user.get("auth-provider"):
        raise ValueError("auth-provider was removed from Kubernetes in 1.26: use an exec plugin")
    impersonation_headers = [("Impersonate-User", str(user["as"]))] if user.get("as") else []
    impersonation_headers += [("Impersonate-Group", str(group)) for group in user.get("as-groups") or ()]
    return ClusterAccess(
        source,
        msgspec.convert(cluster, KubeconfigCluster),
        msgspec.convert(user, KubeconfigUser),
        (context.namespace or "").strip() or "default",
        plugin=msgspec.convert(user["exec"], ExecPlugin) if user.get("exec") else None,
        proxy=cluster.get("proxy-url") or "",
        server_name=cluster.get("tls-server-name") or "",
        impersonation_headers=tuple(impersonation_headers),
    )


def _entry(merged: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] | None = next((e[kind] for e in merged.get(f"{kind}s") or () if e["name"] == name), None)
    if found is None:
        raise ValueError(f"it has no {kind} {name!r}")
    return found


def _read(path: str) -> dict[str, Any]:
    """Read a file and make its relative paths absolute."""
    found: Any
    try:
        with open(path, encoding="utf-8") as file:
            found = yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", next_step=f"ls -l {path}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise _config_error([path], " ".join(str(error).split())) from error
    if not isinstance(found, dict):
        raise _config_error([path], "it is not a YAML mapping")
    return _with_absolute_paths(found, path)


def _with_absolute_paths(found: dict[str, Any], path: str) -> dict[str, Any]:
    directory = os.path.dirname(os.path.abspath(path))
    for singular, plural in (("cluster", "clusters"), ("context", "contexts"), ("user", "users")):
        for entry in found.get(plural) or ():
            if not isinstance(entry, dict) or "name" not in entry:
                raise _config_error([path], f"an entry of {plural} has no name")
            entry[singular] = _absolute(entry.get(singular) or {}, directory, _FILES.get(singular, ()))
    return found


def _absolute(part: dict[str, Any], directory: str, keys: tuple[str, ...]) -> dict[str, Any]:
    absolute: dict[str, Any] = {
        key: os.path.normpath(os.path.join(directory, part[key])) for key in keys if part.get(key)
    }
    plugin = part.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
        absolute["exec"] = {**plugin, "command": os.path.normpath(os.path.join(directory, plugin["command"]))}
    return {**part, **absolute}


def _in_cluster(env: Mapping[str, str], account: str) -> ClusterAccess:
    """Read a pod's service account. Its token is given as a file, as the kubelet renews it about every hour."""
    host, port = env["KUBERNETES_SERVICE_HOST"], env.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        with open(os.path.join(account, "namespace"), encoding="utf-8") as file:
            namespace = file.read().strip()
    except OSError:
        namespace = "default"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    cluster = KubeconfigCluster(server, certificate_authority=os.path.join(account, "ca.crt"))
    return ClusterAccess(
        account, cluster, KubeconfigUser(token_file=os.path.join(account, "token")), namespace or "default"
    )


def _config_error(paths: list[str], reason: str) -> ConfigError:
    shown = os.pathsep.join(paths)
    return ConfigError(
        f"{shown} is not a valid kubeconfig: {reason}", next_step=f"KUBECONFIG={shown} kubectl config view"
    )
