"""``pods/exec`` over WebSockets: authorization, and the answers of a container that a test simulates.

A test defines with ``Execs.play`` what runs in a pod, since no kubelet runs. Refusals use the words and the order of
kube-apiserver and kubelet 1.36: ``get``, admission (CONNECT), ``create``, the pod, its container, its node, kubelet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from support.standin import frames, rbac
from support.standin.admission import Admission
from support.standin.answers import PlainRefusalError, bad_request, forbidden, not_found
from support.standin.call import Call
from support.standin.render import Rendered
from support.standin.store import Store

JSON = dict[str, Any]
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_CHUNK = 2**15


class Command(msgspec.Struct, frozen=True):
    """A command to run: container, arguments and input."""

    namespace: str
    pod: str
    container: str
    words: tuple[str, ...]
    stdin: bytes = b""


class Ran(msgspec.Struct, frozen=True):
    """The result of a command. With ``refusal``, it did not start, and this is the error of the container runtime."""

    status: int = 0
    out: bytes = b""
    err: bytes = b""
    refusal: str = ""


Container = Callable[[Command], Ran]
"""Runs a command, on the connection's own thread. Raises ConnectionError to end the connection without an answer."""


class Execs:
    """The containers that tests simulate, by namespace and pod. ``asked`` lists the commands so far, in their order."""

    def __init__(self, store: Store, admission: Admission) -> None:
        self.asked: list[Command] = []
        self.protocols: tuple[str, ...] = PROTOCOLS
        self._store, self._admission = store, admission
        self._played: dict[tuple[str, str], Container] = {}

    def play(self, pod: str, container: Container, namespace: str = "default") -> None:
        """Simulate all containers of this pod by ``container`` from now on."""
        self._played[namespace, pod] = container

    def stop(self, pod: str, namespace: str = "default") -> None:
        """Stop all containers of this pod."""
        self._played[namespace, pod] = _stopped

    def connect(self, call: Call, headers: dict[str, str]) -> Rendered:
        """Open the connection to a container.

        Raises:
            RefusalError: there is none
        """
        command = self._command(call)
        protocol = _upgrade(headers, self.protocols)
        container = self._played.get((call.namespace, call.name))
        if container is None:
            node = self._pod(call)["spec"]["nodeName"]
            raise PlainRefusalError(500, "", f"error dialing backend: dial tcp: lookup {node}: no such host\n")
        if container is _stopped:
            raise PlainRefusalError(500, "", f'container not found ("{command.container}")\n')
        if headers.get("accept", "*/*") != "*/*":
            raise PlainRefusalError(406, "", "406: Not Acceptable\n\nAvailable representations:")
        has_input = call.query.get("stdin") in ("1", "true")

        def talk(way: frames.Frames) -> None:
            given = _input(way) if has_input else b""
            asked = msgspec.structs.replace(command, stdin=given)
            self.asked.append(asked)
            _answer(way, container(asked))

        answer = Rendered(101, "", session=talk)
        answer.headers = {
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Accept": frames.accept(headers.get("sec-websocket-key", "")),
            "Sec-WebSocket-Protocol": protocol,
        }
        return answer

    def _command(self, call: Call) -> Command:
        """Return the requested command, after authorization."""
        options: JSON = {"kind": "PodExecOptions", "apiVersion": "v1", "command": list(call.command)}
        options |= {key: True for key in ("stdin", "stdout", "stderr", "tty") if call.query.get(key) in ("1", "true")}
        options |= {"container": call.query["container"]} if call.query.get("container") else {}
        self._admission.validate(msgspec.structs.replace(call, verb="connect"), options, None)
        if not rbac.allows_resource(
            self._store, call.caller, "create", "", "pods/exec", namespace=call.namespace, name=call.name
        ):
            raise forbidden("pods", "", call.name, "")
        pod = self._pod(call)
        container = _container(call.query.get("container", ""), pod)
        node = pod["spec"].get("nodeName")
        if not node:
            raise bad_request(f"pod {call.name} does not have a host assigned")
        if self._store.get("nodes.", "", node) is None:
            raise not_found("pods", "", node)
        return Command(call.namespace, call.name, container, call.command)

    def _pod(self, call: Call) -> JSON:
        pod = self._store.get("pods.", call.namespace, call.name)
        if pod is None:
            raise not_found("pods", "", call.name)
        return pod


def _stopped(_: Command) -> Ran:
    raise ConnectionError("nothing runs there")


def _container(asked: str, pod: JSON) -> str:
    names = [row["name"] for key in ("containers", "initContainers") for row in pod["spec"].get(key) or ()]
    plain = [row["name"] for row in pod["spec"]["containers"]]
    if not asked and len(plain) > 1:
        shown = " ".join(plain)
        text = f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: [{shown}]"
        raise bad_request(text)
    if asked and asked not in names:
        raise bad_request(f"container {asked} is not valid for pod {pod['metadata']['name']}")
    return asked or plain[0]


def _upgrade(headers: dict[str, str], known: tuple[str, ...]) -> str:
    if headers.get("upgrade", "").lower() != "websocket":
        raise bad_request("Upgrade request required")
    offered = [one.strip() for one in headers.get("sec-websocket-protocol", "").split(",")]
    found = next((one for one in offered if one in known), None)
    if found is None:
        raise PlainRefusalError(403, "", "")
    return found


def _input(way: frames.Frames) -> bytes:
    """Read all input until its end."""
    whole = b""
    while (data := way.receive()) is not None and data != b"\xff\x00":
        if data[:1] == b"\x00":
            whole += data[1:]
    return whole


def _answer(way: frames.Frames, ran: Ran) -> None:
    way.send(b"\x01")  # the real one begins with an empty message, so that the client knows that it is connected
    for channel, data in ((b"\x01", ran.out), (b"\x02", ran.err)):
        for start in range(0, len(data), _CHUNK):
            way.send(channel + data[start : start + _CHUNK])
    way.send(b"\x03" + msgspec.json.encode(_status(ran)))
    way.close()


def _status(ran: Ran) -> JSON:
    if ran.refusal:
        text = f"error executing command in container: {ran.refusal}"
        causes = {"causes": [{"message": text}]}
        text = f"Internal error occurred: {text}"
        failure = {"metadata": {}, "status": "Failure", "message": text, "reason": "InternalError", "code": 500}
        return {**failure, "details": causes}
    if ran.status == 0:
        return {"metadata": {}, "status": "Success"}
    text = f"command terminated with non-zero exit code: exit status {ran.status}"
    details = {"causes": [{"reason": "ExitCode", "message": str(ran.status)}]}
    return {"metadata": {}, "status": "Failure", "message": text, "reason": "NonZeroExitCode", "details": details}
