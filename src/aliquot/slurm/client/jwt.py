"""Slurm's tokens: JWTs that ``scontrol token`` or the site creates."""

from __future__ import annotations

import base64
import os
import time

import msgspec

from aliquot.slurm.client.errors import DeniedError


def check_token(token: str, purpose: str) -> None:
    """Raise DeniedError if a token has expired, because Slurm 22.05 does not report that."""
    claims = _claims(token)
    until = claims.get("exp")
    if isinstance(until, int | float) and until < time.time():
        raise token_denied(purpose, f"the token of {claims.get('sun', 'unknown user')} expired at {int(until)}")


def token_denied(purpose: str, message: str) -> DeniedError:
    """Return the error for a token that slurmrestd rejects."""
    return DeniedError(
        f"not permitted to {purpose}: slurmrestd rejected the token",
        details=(message,) if message else (),
        next_step="export $(scontrol token username=$USER lifespan=86400)",
    )


def token_from_environment() -> str:
    """Return SLURM_JWT, unless it is ``daemon``, which only turns on slurmrestd's own authentication."""
    token = os.environ.get("SLURM_JWT", "")
    return "" if token == "daemon" else token


def user_of(token: str) -> str:
    """Return the user of a token, which Slurm's own tokens name (``sun``); "" for other tokens."""
    name = _claims(token).get("sun", "")
    return name if isinstance(name, str) and name.isascii() and name.isprintable() else ""


def _claims(token: str) -> dict[str, object]:
    middle = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}
