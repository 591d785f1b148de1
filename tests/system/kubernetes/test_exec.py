"""Commands in containers: authorization, results, and a message for each failure.

Refusals that need no kubelet are requested from a real API server too; the rest, from a real kubelet in
``test_real_exec.py``.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aliquot.errors import AliquotError
from aliquot.kubernetes.client import exec as exec_module
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import (
    ApiError,
    ApiUnavailableError,
    ConnectionBrokenError,
    ForbiddenError,
    NotFoundError,
)
from aliquot.kubernetes.client.exec import CommandResult, ExecError, NoContainerError, UnfinishedError, exec_
from support.cluster import Cluster, StandinCluster
from support.cluster_real import assets
from support.standin.execs import Command, Ran

JSON = dict[str, Any]
T = TypeVar("T")
PODS = "/api/v1/namespaces/default/pods"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
V4 = ("v4.channel.k8s.io",)


def asking(cluster: Cluster, job: Callable[[Api], Awaitable[T]], account: str | None = None) -> T:
    """Run ``job`` with a client of its own and return the result."""

    async def main() -> T:
        async with Api.connect(str(cluster.kubeconfig(serviceaccount=account))) as api:
            return await job(api)

    return asyncio.run(main())


def run(
    cluster: Cluster, *words: str, pod: str = "p", container: str = "main", timeout_s: float = 10, **more: Any
) -> CommandResult:
    stdin, account = more.get("stdin", b""), more.get("account")
    return asking(cluster, lambda api: exec_(api, pod, "default", container, words, timeout_s, stdin=stdin), account)


def pod(cluster: Cluster, name: str = "p", node: str = "n1", containers: tuple[str, ...] = ("main",)) -> None:
    if node and cluster.request("GET", f"/api/v1/nodes/{node}").status == 404:
        cluster.must("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    rows = [{"name": one, "image": "x"} for one in containers]
    spec = {"containers": rows, **({"nodeName": node} if node else {})}
    cluster.must("POST", PODS, {"metadata": {"name": name}, "spec": spec})


def played(cluster: StandinCluster, answer: Callable[[Command], Ran]) -> StandinCluster:
    pod(cluster)
    cluster.standin.execs.play("p", answer)
    return cluster


def let(cluster: Cluster, account: str, *verbs: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": list(verbs)}]
    cluster.must("POST", f"{RBAC}/roles", {"metadata": {"name": account}, "rules": rules})
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "default"}
    body = {"metadata": {"name": account}, "roleRef": ref, "subjects": [subject]}
    cluster.must("POST", f"{RBAC}/rolebindings", body)


# -- the output of a command


@pytest.mark.parametrize("protocols", [exec_module.PROTOCOLS, V4])
def test_output_errors_and_exit_status(
    standin_cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch, protocols: tuple[str, ...]
) -> None:
    monkeypatch.setattr(exec_module, "PROTOCOLS", protocols)
    cluster = played(standin_cluster, lambda c: Ran(3, " ".join(c.words).encode(), b"oh\n"))
    assert run(cluster, "say", "a b", "c&d=e", "") == CommandResult(3, "say a b c&d=e ", "oh\n")
    assert cluster.standin.execs.asked == [Command("default", "p", "main", ("say", "a b", "c&d=e", ""))]


def test_much_output_is_whole_and_too_much_is_refused(
    standin_cluster: StandinCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = played(standin_cluster, lambda c: Ran(0, b"x" * 1_000_000))
    assert run(cluster, "a").out == "x" * 1_000_000
    monkeypatch.setattr(exec_module, "OUTPUT_MOST", 2**19)
    with pytest.raises(UnfinishedError, match="wrote more than"):
        run(cluster, "a")


def test_input_is_sent_and_its_end_is_reported(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: Ran(0, c.stdin[::-1]))
    data = bytes(range(1, 120)) * 1000
    assert run(cluster, "rev", stdin=data).out.encode() == data[::-1]


def test_an_old_server_cannot_take_input(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: Ran(0, c.stdin))
    cluster.standin.execs.protocols = V4
    assert run(cluster, "a").status == 0
    with pytest.raises(ApiError, match=r"refused to create pods/exec|forbids create"):
        run(cluster, "a", stdin=b"x")


def test_a_program_that_is_not_there_ends_as_in_a_shell(standin_cluster: StandinCluster) -> None:
    start = 'OCI runtime exec failed: exec failed: unable to start container process: exec: "nvidia-smi": '
    cluster = played(standin_cluster, lambda c: Ran(refusal=f"{start}executable file not found in $PATH: unknown"))
    assert run(cluster, "nvidia-smi") == CommandResult(
        127, "", 'exec: "nvidia-smi": executable file not found in $PATH: unknown'
    )
    cluster.standin.execs.play("p", lambda c: Ran(refusal=f"{start}permission denied: unknown"))
    assert run(cluster, "nvidia-smi").status == 126
    cluster.standin.execs.play("p", lambda c: Ran(refusal="OCI runtime exec failed: exec failed: no cgroup"))
    with pytest.raises(ExecError, match=r"nvidia-smi could not run in pod default/p: .*no cgroup"):
        run(cluster, "nvidia-smi")


# -- authorization


@pytest.mark.parametrize(("verbs", "lacks"), [((), "get"), (("create",), "get"), (("get",), "create")])
def test_both_rights_are_needed_and_the_one_that_lacks_is_named(
    cluster: Cluster, verbs: tuple[str, ...], lacks: str
) -> None:
    pod(cluster)
    let(cluster, "agent", *(verbs or ("list",)))
    with pytest.raises(ForbiddenError) as caught:
        refused_soon(cluster, lacks)
    assert f"permission to {lacks} pods/exec p in namespace default" in caught.value.brief
    assert f"kubectl auth can-i {lacks} pods/p --subresource=exec -n default" in (caught.value.next_step or "")


def refused_soon(cluster: Cluster, verb: str) -> None:
    """Ask until a role counts, which takes the real server a moment."""

    def reported() -> bool:
        try:
            run(cluster, "a", account="agent")
        except ForbiddenError as error:
            return f"to {verb} " in error.brief
        return False

    cluster.wait(reported, f"the right to {verb} to lack")
    run(cluster, "a", account="agent")


def test_with_both_rights_a_command_runs(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: Ran(0, b"hi"))
    let(cluster, "agent", "get", "create")
    assert run(cluster, "a", account="agent").out == "hi"


def test_a_policy_on_connect_is_asked(cluster: Cluster) -> None:
    # The request of an exec is a CONNECT, with its options as the object.
    pod(cluster)
    api = "admissionregistration.k8s.io/v1"
    rule = {"apiGroups": [""], "apiVersions": ["*"], "operations": ["CONNECT"], "resources": ["pods/exec"]}
    text = "object.command[0] != 'rm' && request.operation == 'CONNECT' || request.name != 'p'"
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": text, "message": "no rm", "reason": "Forbidden"}],
    }
    kind = {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "x"}, "spec": spec}
    bind = {"policyName": "x", "validationActions": ["Deny"]}
    cluster.apply([kind, {**kind, "kind": "ValidatingAdmissionPolicyBinding", "spec": bind}])

    def denied() -> str:
        try:
            run(cluster, "rm")
        except AliquotError as error:
            return " ".join((error.brief, *error.details))
        return ""

    cluster.wait(lambda: "no rm" in denied(), "the policy to count")
    with pytest.raises(ApiUnavailableError, match="API server cannot reach the kubelet of pod default/p"):
        run(cluster, "ls")


# -- missing objects


def test_no_such_pod(cluster: Cluster) -> None:
    with pytest.raises(NotFoundError, match='pods "gone" not found'):
        run(cluster, "a", pod="gone")


def test_no_such_container(cluster: Cluster) -> None:
    pod(cluster)
    with pytest.raises(NoContainerError, match="container other is not valid for pod p"):
        run(cluster, "a", container="other")


def test_a_container_must_be_named_where_there_are_two(cluster: Cluster) -> None:
    pod(cluster, containers=("a", "b"))
    with pytest.raises(ApiError, match=r"choose one of: \[a b\]"):
        run(cluster, "a", container="")


def test_a_pod_without_a_node(cluster: Cluster) -> None:
    pod(cluster, node="")
    with pytest.raises(NoContainerError, match="does not have a host assigned"):
        run(cluster, "a")


def test_a_pod_whose_node_is_gone(cluster: Cluster) -> None:
    pod(cluster)
    cluster.must("DELETE", "/api/v1/nodes/n1")
    with pytest.raises(NotFoundError, match="pod default/p was on node n1, which no longer exists"):
        run(cluster, "a")


def test_a_kubelet_that_does_not_answer(cluster: Cluster) -> None:
    pod(cluster)
    with pytest.raises(ApiUnavailableError, match="the API server cannot reach the kubelet of pod default/p") as caught:
        run(cluster, "a")
    assert caught.value.next_step == "kubectl -n default get pod p -o wide"


def test_a_container_that_ended(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: Ran())
    cluster.standin.execs.stop("p")
    with pytest.raises(NoContainerError, match=r'no running container of that name: container not found \("main"\)'):
        run(cluster, "a")


def test_a_plain_request_is_reported_to_upgrade(standin_cluster: StandinCluster) -> None:
    pod(standin_cluster)
    answer = standin_cluster.request("GET", f"{PODS}/p/exec?command=ls")
    assert (answer.status, answer.body["message"]) == (400, "Upgrade request required")


# -- broken connections


def test_a_connection_that_breaks_before_the_end(standin_cluster: StandinCluster) -> None:
    def cut(_: Command) -> Ran:
        raise ConnectionError

    cluster = played(standin_cluster, cut)
    with pytest.raises(UnfinishedError, match="status of sriov-manage -e ALL in pod default/p is unknown: the conn"):
        run(cluster, "sriov-manage", "-e", "ALL")


def test_a_command_that_does_not_end(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: asyncio.run(asyncio.sleep(1.5)) or Ran())
    with pytest.raises(UnfinishedError, match=r"did not end within 0\.3 s and may still run"):
        run(cluster, "a", timeout_s=0.3)


def test_a_server_that_is_unavailable(cluster: Cluster) -> None:
    pod(cluster)
    with cluster.unavailable(), pytest.raises(ApiUnavailableError, match="Connection refused") as caught:
        run(cluster, "a")
    assert not isinstance(caught.value, ConnectionBrokenError), "nothing can have been begun"


def test_a_server_that_hangs(standin_cluster: StandinCluster) -> None:
    pod(standin_cluster)
    with standin_cluster.unavailable("hang"), pytest.raises(ConnectionBrokenError, match=r"no answer within 0\.5 s"):
        run(standin_cluster, "a", timeout_s=0.5)


def test_requests_are_counted_and_reported(standin_cluster: StandinCluster) -> None:
    cluster = played(standin_cluster, lambda c: Ran(0))
    heard: list[tuple[str, str, int]] = []

    async def job(api: Api) -> None:
        api.session.on_request = lambda verb, what, status, seconds: heard.append((verb, what, status))
        await exec_(api, "p", "default", "main", ["a"], 5)
        with pytest.raises(NotFoundError):
            await exec_(api, "q", "default", "main", ["a"], 5)

    asking(cluster, job)
    assert heard == [("create", "pods/exec", 101), ("create", "pods/exec", 404)]


def test_kubectl_exec_takes_the_standin_for_the_real_thing(standin_cluster: StandinCluster, tmp_path: Path) -> None:
    # The stand-in's side of the protocol, judged by Kubernetes' own client.
    kubectl = (assets() or tmp_path) / "kubectl"
    if not kubectl.exists():
        pytest.skip("no kubectl beside kube-apiserver (KUBEBUILDER_ASSETS): the distribution's may not know WebSockets")
    cluster = played(standin_cluster, lambda c: Ran(7, b"out:" + c.stdin, b"err\n"))
    command = [
        str(kubectl),
        "--kubeconfig",
        str(cluster.kubeconfig()),
        "exec",
        "-i",
        "p",
        "-c",
        "main",
        "--",
        "cat",
        "-",
    ]
    done = subprocess.run(command, input=b"hello", capture_output=True, timeout=30)
    assert (done.returncode, done.stdout) == (7, b"out:hello")
    assert done.stderr.startswith(b"err\n")
    assert cluster.standin.execs.asked[-1].words == ("cat", "-")
