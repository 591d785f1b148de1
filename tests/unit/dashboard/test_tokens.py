"""Comparison of whole tokens: one whose digest begins or ends like the valid one's is refused."""

from __future__ import annotations

import ast
import asyncio
import hmac
import re
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from aliquot.dashboard import security
from aliquot.dashboard.security.csrf import same
from aliquot.dashboard.security.token_authenticator import TICKET_S, TokenAuthenticator, digest
from aliquot.dashboard.view_models import Person

ANN = Person("ann")
TOKEN = "right"
PLACES = (0, 15, -1)


def _alike(token: str, place: int) -> str:
    """Find another token whose digest has the same byte there."""
    return next(word for word in map(str, count()) if digest(word)[place] == digest(token)[place])


@pytest.fixture
def authenticator() -> TokenAuthenticator:
    return TokenAuthenticator(TOKEN, ANN, "")


def test_the_right_token_is_admitted(authenticator: TokenAuthenticator) -> None:
    assert asyncio.run(authenticator.admit(TOKEN)) is ANN


@pytest.mark.parametrize("place", PLACES)
def test_a_token_with_a_digest_that_is_alike_in_part_is_not(place: int, authenticator: TokenAuthenticator) -> None:
    assert asyncio.run(authenticator.admit(_alike(TOKEN, place))) is None


@pytest.mark.parametrize("place", PLACES)
def test_nor_is_a_ticket(place: int, authenticator: TokenAuthenticator) -> None:
    ticket = authenticator.ticket()
    assert authenticator.redeem(_alike(ticket, place)) is None
    assert authenticator.redeem(ticket) is ANN
    assert authenticator.redeem(ticket) is None, "once"


def test_a_ticket_holds_for_its_time_and_no_longer(
    authenticator: TokenAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    ticket = authenticator.ticket()
    now += TICKET_S + 1
    assert authenticator.redeem(ticket) is None
    now -= 1
    assert authenticator.redeem(ticket) is ANN


def test_a_new_ticket_voids_the_one_before(authenticator: TokenAuthenticator) -> None:
    first, second = authenticator.ticket(), authenticator.ticket()
    assert authenticator.redeem(first) is None
    assert authenticator.redeem(second) is ANN


@pytest.mark.parametrize("given", ["", "s", "secre", "secret ", "Secret", "xecret", "secrex", "\ud800"])
def test_a_secret_of_a_form_is_compared_as_a_whole(given: str) -> None:
    assert not same(given, "secret")
    assert same("secret", "secret")


def test_secrets_are_compared_in_constant_time(
    authenticator: TokenAuthenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The response time does not reveal how much of a guess is right."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr("aliquot.dashboard.security.token_authenticator.hmac", SimpleNamespace(compare_digest=compare))
    monkeypatch.setattr("aliquot.dashboard.security.csrf.hmac", SimpleNamespace(compare_digest=compare))
    ticket = authenticator.ticket()
    asyncio.run(authenticator.admit("guess"))
    authenticator.redeem("guess")
    same("guess", "secret")
    wanted = [(digest("guess"), digest(TOKEN)), (digest("guess"), digest(ticket)), (b"guess", b"secret")]
    assert compared == wanted
    code = ast.parse("\n".join(path.read_text() for path in sorted(Path(security.__path__[0]).glob("*.py"))))
    plain = [
        ast.unparse(node)
        for node in ast.walk(code)
        if isinstance(node, ast.Compare)
        and any(isinstance(op, (ast.Eq, ast.NotEq)) for op in node.ops)
        and re.search(r"(?i)token|secret|ticket|digest|cookie", ast.unparse(node))
    ]
    assert not plain, "compare them with hmac.compare_digest"
