"""Two DRA drivers of one name on a node: the second refuses to start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from aliquot.kubernetes.dra.agent.claim_types import OtherDriverError
from aliquot.kubernetes.dra.agent.other_driver import refuse_other_socket

DRIVER = "gpu.nvidia.com"


@pytest.mark.parametrize(
    "name",
    [
        f"plugins/{DRIVER}/dra.sock",
        f"plugins/{DRIVER}/dra.4711.sock",
        f"plugins_registry/{DRIVER}-reg.sock",
        f"plugins_registry/{DRIVER}-4711-reg.sock",
    ],
)
def test_a_socket_that_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket has at most 107 bytes
    refuse_other_socket(".", DRIVER)
    path = Path(name)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        refuse_other_socket(".", DRIVER)  # nothing listens yet
        listener.listen()
        with pytest.raises(OtherDriverError, match="a program listens on") as caught:
            refuse_other_socket(".", DRIVER)
        assert caught.value.next_step == f"remove it from the node: fuser -v ./{path}"
        refuse_other_socket(".", "gpu.aliquot.dev")
    refuse_other_socket(".", DRIVER)  # a leftover
