"""Refusal to start beside another DRA driver of the same name: both would give the same GPUs."""

from __future__ import annotations

import glob
import os
import socket

from aliquot.kubernetes.dra.agent.claim_types import OtherDriverError

_PATIENCE_S = 1.0


def refuse_other_socket(kubelet_dir: str, driver: str) -> None:
    """Raise OtherDriverError if a program listens on a socket of this driver.

    Call it with the lock of the agent's role, when no agent of Aliquot listens. A socket that nothing listens on is a
    leftover.
    """
    plugins = os.path.join(kubelet_dir, "plugins", driver, "dra*.sock")
    registrations = os.path.join(kubelet_dir, "plugins_registry", f"{driver}-*reg.sock")
    for path in sorted((*glob.glob(plugins), *glob.glob(registrations))):
        if _answers(path):
            raise OtherDriverError(
                f"another DRA driver serves {driver} on this node: a program listens on {path}",
                details=("two drivers of one name would give the same GPUs to different pods",),
                next_step=f"remove it from the node: fuser -v {path}",
            )


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_PATIENCE_S)
        try:
            connection.connect(path)
        except OSError:
            return False
        return True
