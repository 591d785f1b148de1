"""The stand-in's CEL: values, errors, and refused expressions."""

from __future__ import annotations

from typing import Any

import pytest

from support.standin import cel

OBJECT = {"metadata": {"name": "n1", "labels": {"a": "1", "b/c": "2"}}, "spec": {"n": 3, "list": ["x", "y"]}}
REQUEST = {"userInfo": {"username": "agent", "extra": {"node": ["n1"]}}}
VALUES: list[tuple[str, Any]] = [
    ("object.metadata.name == 'n1'", True),
    ('"a" in object.metadata.labels', True),
    ("!('z' in object.metadata.labels)", True),
    ("has(object.metadata.labels) && !has(object.status)", True),
    ("object.metadata.labels['b/c']", "2"),
    ("object.spec.n + 2 * 3 - 1", 8),
    ("-object.spec.n % 2", -1),
    ("7 / 2", 3),
    ("object.spec.n > 2 ? 'many' : 'few'", "many"),
    ("object.metadata.labels.all(k, k.size() < 4)", True),
    ("object.spec.list.exists(x, x == 'y')", True),
    ("object.spec.list.exists_one(x, x in ['x', 'y'])", False),
    ("object.spec.list.filter(x, x != 'x')", ["y"]),
    ("object.spec.list.map(x, x + '!')", ["x!", "y!"]),
    ("'a/b/c'.split('/')[1]", "b"),
    ("'Ab'.lowerAscii().startsWith('a') && 'ab'.endsWith('b') && 'abc'.contains('b')", True),
    ("'n-17'.matches('^n-[0-9]+$')", True),
    ("object.?status.?phase.orValue('none')", "none"),
    ("request.userInfo.?extra[?'node'][0].orValue('')", "n1"),
    ("request.userInfo.?extra[?'other'][0].orValue('')", ""),
    ("object.?spec.hasValue()", True),
    ("size(object.spec.list) == 2 && string(object.spec.n) == '3' && int('4') == 4", True),
    ("{'a': 1}['a'] == 1 && [1, 2][1] == 2", True),
    ("true || object.nothing.there", True),
    ("object.nothing.there || true", True),
    ("false && object.nothing.there", False),
    ("1 == '1'", False),
    ("quantity('1Gi').compareTo(quantity('1024Mi')) == 0 && quantity('1Gi') == quantity('1024Mi')", True),
    ("quantity('1G').isLessThan(quantity('1Gi')) && quantity('-1').sign() == -1", True),
    ("isQuantity('12x') || quantity('2k').asInteger() != 2000", False),
    ("semver('1.2.10').isGreaterThan(semver('1.2.9')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))", True),
    ("semver('1.0.0-2').compareTo(semver('1.0.0-beta')) == -1 && semver('1.2.3').minor() == 2", True),
    ("isSemver('1.2') || semver('1.0.0+a') != semver('1.0.0+b')", False),
    ("cel.bind(n, object.spec.n, n * n)", 9),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_values(text: str, value: Any) -> None:
    assert cel.evaluate(text, {"object": OBJECT, "request": REQUEST}) == value


@pytest.mark.parametrize(
    "text",
    [
        "object.nothing",
        "object.metadata.labels['z'] == '1'",
        "object.spec.list[5]",
        "1 + 'a'",
        "!1",
        "1 / 0",
        "1 && true",
    ],
)
def test_errors(text: str) -> None:
    with pytest.raises(cel.CelError):
        cel.evaluate(text, {"object": OBJECT})


@pytest.mark.parametrize(
    "text",
    [
        "object.",
        "a b",
        "(a",
        "'open",
        "duration('1h') < duration('2h')",
        "authorizer.group('x')",
        "ip('::1')",
        "object.all()",
    ],
)
def test_what_is_not_known_is_refused_when_read(text: str) -> None:
    assert cel.fault(text, ("object", "a", "b"))
