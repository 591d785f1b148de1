"""Writes of the players: somebody else may have been quicker, any other refusal is a fault of the test world."""

from __future__ import annotations

from support.cluster import Cluster


def write(cluster: Cluster, method: str, path: str, body: object = None) -> bool:
    """Whether it was done; False where the object has changed, is there already or is gone.

    Raises:
        AssertionError: it was refused for any other reason
    """
    answer = cluster.request(method, path, body)
    assert answer.status < 300 or answer.status in (404, 409), f"{method} {path}: {answer.status} {answer.body}"
    return answer.status < 300
