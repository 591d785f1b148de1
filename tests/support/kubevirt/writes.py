"""Writes of the simulated actors: another writer may have been quicker. Any other refusal is an error of the test
setup.
"""

from __future__ import annotations

from support.cluster import Cluster


def write(cluster: Cluster, method: str, path: str, body: object = None) -> bool:
    """Write, and report whether it succeeded. False if the object has changed, exists already or is gone.

    Raises:
        AssertionError: it was refused for any other reason
    """
    answer = cluster.request(method, path, body)
    assert answer.status < 300 or answer.status in (404, 409), f"{method} {path}: {answer.status} {answer.body}"
    return answer.status < 300
