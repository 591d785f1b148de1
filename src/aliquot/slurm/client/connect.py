"""The choice between Slurm's commands and slurmrestd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import UsageError
from aliquot.slurm.client.port import Slurm

VARIABLE = "ALIQUOT_SLURM"
LOCAL_REST_URL = "http://127.0.0.1:6820"
_URL_SCHEMES = ("http:", "https:", "unix:")


@contextmanager
def open_client(choice: str = "", conf: str = "") -> Iterator[Slurm]:
    """Open a client for the cluster of ``conf`` (default: SLURM_CONF, then Slurm's own default).

    ``choice`` (default: ALIQUOT_SLURM) is ``commands``, the default; ``rest`` for a slurmrestd on this host; or the URL
    of one: ``http://host:6820``, ``https://host``, ``unix:/run/slurmrestd.sock``. The token is SLURM_JWT. The first
    request connects. Raises UsageError for another choice.
    """
    from aliquot.slurm.client.command_client import ScontrolClient

    chosen = choice or os.environ.get(VARIABLE, "") or "commands"
    commands = ScontrolClient(conf)
    if chosen == "commands":
        yield commands
    elif chosen == "rest" or chosen.startswith(_URL_SCHEMES):
        from aliquot.slurm.client.jwt import token_from_environment
        from aliquot.slurm.client.rest_client import SlurmRestClient
        from aliquot.slurm.client.rest_transport import RestTransport

        yield SlurmRestClient(
            RestTransport(LOCAL_REST_URL if chosen == "rest" else chosen, token_from_environment()), commands
        )
    else:
        raise UsageError(
            f"invalid {VARIABLE} {chosen!r}: use commands, rest, or the URL of slurmrestd",
            next_step=f"export {VARIABLE}=http://HOST:6820",
        )
