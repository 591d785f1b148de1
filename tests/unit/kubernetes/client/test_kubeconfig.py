"""API access: the server, the credentials, and the proxy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aliquot.errors import ConfigError
from aliquot.kubernetes.client.kubeconfig import NoClusterError, find_access, from_files
from aliquot.kubernetes.client.proxy import proxy_for

ONE = """
apiVersion: v1
kind: Config
current-context: a
clusters:
- name: a
  cluster: {server: "https://one:6443/", certificate-authority: pki/ca.crt, tls-server-name: kube, proxy-url: http://p:1}
contexts:
- name: a
  context: {cluster: a, user: a, namespace: ns}
users:
- name: a
  user: {client-certificate: me.crt, client-key: /abs/me.key, as: other, as-groups: [g, h]}
"""
TWO = """
current-context: b
clusters: [{name: a, cluster: {server: "https://two"}}, {name: b, cluster: {server: "https://two"}}]
contexts: [{name: b, context: {cluster: b, user: b}}, {name: a, context: {cluster: b, user: b}}]
users: [{name: b, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: null}}}]
preferences: {}
extensions: null
"""


def write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text)
    return str(path)


def test_a_file_with_everything(tmp_path: Path) -> None:
    access = from_files([write(tmp_path, "k", ONE)])
    assert (access.server, access.namespace, access.server_name) == ("https://one:6443", "ns", "kube")
    assert access.proxy == "http://p:1"
    assert access.cluster.certificate_authority == str(tmp_path / "pki/ca.crt")
    assert (access.user.client_certificate, access.user.client_key) == (str(tmp_path / "me.crt"), "/abs/me.key")
    assert access.impersonation_headers == (
        ("Impersonate-User", "other"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
    )
    assert access.plugin is None


def test_of_several_files_the_first_word_counts_and_paths_stay_with_their_file(tmp_path: Path) -> None:
    one, two = write(tmp_path, "x/one", ONE), write(tmp_path, "y/two", TWO)
    first = find_access(None, {"KUBECONFIG": f"{one}:{tmp_path}/absent:{two}"}, "/nowhere")
    assert (first.server, first.cluster.certificate_authority) == ("https://one:6443", str(tmp_path / "x/pki/ca.crt"))
    second = find_access(None, {"KUBECONFIG": f"{two}{os.pathsep}{one}"}, "/nowhere")
    assert (second.server, second.namespace) == ("https://two", "default")
    assert second.plugin is not None
    assert (second.plugin.command, second.plugin.args) == (str(tmp_path / "y/login"), None)


def test_a_pod_uses_its_service_account(tmp_path: Path) -> None:
    home = write(tmp_path, ".kube/config", ONE)
    for name, text in (("token", "t\n"), ("namespace", "gpu-operator\n")):
        write(tmp_path / "account", name, text)
    env = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443", "HOME": str(tmp_path)}
    account = str(tmp_path / "account")
    access = find_access(None, env, account)
    assert (access.server, access.namespace) == ("https://[fd00::1]:6443", "gpu-operator")
    assert access.user.token_file == f"{account}/token"
    assert access.cluster.certificate_authority == f"{account}/ca.crt"
    assert (
        find_access(None, {**env, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}, account).server == "https://10.96.0.1:6443"
    )
    assert find_access(home, env, account).server == "https://one:6443"  # an explicit path takes precedence
    assert find_access(None, {"HOME": str(tmp_path)}, account).server == "https://one:6443"  # not in a pod


def test_nothing_says_where(tmp_path: Path) -> None:
    with pytest.raises(NoClusterError) as caught:
        find_access(None, {"HOME": str(tmp_path)}, "/nowhere")
    assert f"{tmp_path}/.kube/config does not exist" in caught.value.brief
    assert caught.value.next_step == "export KUBECONFIG=/path/to/kubeconfig"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is not a YAML mapping"),
        ("- a", "it is not a YAML mapping"),
        ("a: [", "is not a valid kubeconfig"),
        ("\x00", "is not a valid kubeconfig"),
        ("clusters: []", "no current-context is set"),
        ("current-context: x", "it has no context 'x'"),
        ("current-context: x\ncontexts: [{name: x, context: {cluster: y}}]", "it has no cluster 'y'"),
        ("current-context: x\ncontexts: [{name: x, context: {}}]", "cluster"),
        ("clusters: [{cluster: {}}]", "an entry of clusters has no name"),
        (ONE.replace("https://one:6443/", "one").replace('"one"', "7"), "Expected `str`, got `int`"),
        (TWO.replace("command: ./login, ", "") + "\n", "command"),
        (ONE.replace("as: other", "auth-provider: {name: gcp}"), "use an exec plugin"),
    ],
)
def test_a_file_that_is_wrong(tmp_path: Path, text: str, why: str) -> None:
    path = write(tmp_path, "k", text)
    with pytest.raises(ConfigError) as caught:
        from_files([path])
    assert why in caught.value.brief
    assert path in caught.value.brief


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        find_access(str(tmp_path))
    with pytest.raises(ConfigError, match="No such file"):
        find_access(str(tmp_path / "absent"))


@pytest.mark.parametrize(
    ("server", "no_proxy", "direct"),
    [
        ("https://api.example:6443", "", False),
        ("https://api.example:6443", "api.example:\u00b2", False),
        ("https://api.example:6443", f"api.example:{'9' * 5000}", False),
        ("https://api.example:6443", "example", True),
        ("https://api.example:6443", ".example", True),
        ("https://api.example:6443", "*.example", True),
        ("https://example", ".example", False),
        ("https://example", "example", True),
        ("https://notexample", "example", False),
        ("https://api.example:6443", "api.example:6443", True),
        ("https://api.example:6443", "api.example:443", False),
        ("https://10.96.0.1:443", "localhost, 10.96.0.0/12", True),
        ("https://10.96.0.1:443", "10.96.0.1", True),
        ("https://10.96.0.1:443", "10.0.0.0/16", False),
        ("https://10.96.0.1:443", "10.96.0.0/99,0.1", False),
        ("https://[fd00::1]:443", "fd00::/8", True),
        ("https://[fd00::1]:443", "[fd00::1]:443", True),
        ("https://127.0.0.1:6443", "", True),
        ("https://localhost:6443", "", True),
        ("https://api.example", "*", True),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(server: str, no_proxy: str, direct: bool) -> None:
    env = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": no_proxy}
    assert proxy_for(server, "", env) == (None if direct else "http://proxy:3128")


def test_the_kubeconfigs_proxy_wins_and_the_scheme_chooses() -> None:
    env = {"HTTPS_PROXY": "http://a", "NO_PROXY": "*"}
    assert proxy_for("https://x", "socks5://b", env) == "socks5://b"
    assert proxy_for("http://x", "", {"HTTPS_PROXY": "http://a"}) is None
    assert proxy_for("https://x", "", {"https_proxy": "http://low"}) == "http://low"
    assert proxy_for("https://x", "", {}) is None
