"""Slurm's tokens: JWTs, made by ``scontrol token`` or by the site."""

from __future__ import annotations

import base64
import os
import time

import msgspec

from aliquot.slurm.client.errors import DeniedError


def check_token(token: str, purpose: str) -> None:
    """Slurm 22.05 does not say that a token is over: its own date does. Raises DeniedError."""
    claims = _claims(token)
    until = claims.get("exp")
    if isinstance(until, int | float) and until < time.time():
        raise token_denied(purpose, f"the token of {claims.get('sun', 'nobody')} was good until {int(until)}")


def token_denied(purpose: str, message: str) -> DeniedError:
    return DeniedError(
        f"may not {purpose}: slurmrestd does not take our token",
        details=(message,) if message else (),
        next_step="export $(scontrol token username=$USER lifespan=86400)",
    )


def token_from_environment() -> str:
    """SLURM_JWT, unless it only switches slurmrestd's own authentication on."""
    token = os.environ.get("SLURM_JWT", "")
    return "" if token == "daemon" else token


def user_of(token: str) -> str:
    """Whose token it is, as Slurm's own tokens say (``sun``); "" for others."""
    name = _claims(token).get("sun", "")
    return name if isinstance(name, str) and name.isascii() and name.isprintable() else ""


def _claims(token: str) -> dict[str, object]:
    middle = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = msgspec.json.decode(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
    except (ValueError, msgspec.DecodeError):
        return {}
    return found if isinstance(found, dict) else {}
