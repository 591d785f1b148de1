"""House rules for packages, error codes, names and packaged data."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import aliquot
from aliquot import errors
from support.syntax import nodes, tree

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src/aliquot").rglob("*.py"))
NAMED = [*SOURCES, *(p for area in ("tests", "benchmarks", "tools") for p in sorted((ROOT / area).rglob("*.py")))]


def test_every_error_has_a_code_and_a_documented_exit_code() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.AliquotError)]
    codes = [c.code for c in classes if "code" in vars(c)]  # not of classes that inherit a code
    assert len(set(codes)) == len(codes)
    assert {c.exit_code for c in classes} <= {1, 2, 20, 30, 40, 130}
    assert all(c.__doc__ for c in classes)


def test_every_refusal_names_its_rule_and_the_next_step() -> None:
    # The code of the class itself, BLOCKED, stands for no rule.
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "BlockedError"
        and {"code", "next_step"} - {word.arg for word in node.keywords}
    ]
    assert found == []


def test_the_packaged_catalog_is_made_from_the_reviewed_one() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/build_catalog.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_words_that_the_glossary_bans_stay_out_of_names() -> None:
    banned = re.compile(r"^\s*(?:def|class) \w*(?:flavor|helper|utils|manager|handler)\w*", re.IGNORECASE)
    found = [
        f"{p.relative_to(ROOT)}: {line.strip()}"
        for p in SOURCES
        for line in p.read_text().splitlines()
        if banned.match(line)
    ]
    assert not found


REFUSED = re.compile(
    "wish(es|ed)?|told|said|corner|shelf|shelves|spots?|habit|desk|deeds?|doomed|strangers?|tally|glance|besides|"
    "believing|meant|far|ways|anew|away|foreseen|whoever|somebody|nobody|worlds?|doors?|lanes?|former|recut|troubles?"
)
"""Words of the private vocabulary that standard terms have replaced."""


def test_the_private_vocabulary_stays_out_of_names() -> None:
    # Checks the names of modules, classes, functions, parameters, variables, attributes and import aliases.
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in NAMED
        for name in (path.stem, *_names(path))
        if _is_refused(name)
    }
    assert not found


@cache
def _is_refused(name: str) -> bool:
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return "carry_out" in name or any(REFUSED.fullmatch(word.lower()) for word in words)


def test_no_two_public_classes_share_a_name() -> None:
    # A search for the class in a traceback finds one definition.
    names = Counter(
        node.name
        for path in SOURCES
        if path.parent.name != "protos"  # generated: their names are those of the wire
        for node in tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert not [name for name, count in names.items() if count > 1]


_BINDING = frozenset(
    {
        *(ast.Name, ast.Attribute, ast.arg, ast.alias, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar, ast.MatchMapping),
    }
)


def _names(path: Path) -> Iterator[str]:
    """Yield every name that a module binds. A name that it only uses is bound elsewhere."""
    # No other test here reads what is not a source.
    for node in nodes(path) if path.is_relative_to(ROOT / "src") else ast.walk(ast.parse(path.read_text())):
        if type(node) not in _BINDING:  # most are not, and each case takes its time
            continue
        match node:
            case (
                ast.Name(id=name, ctx=ast.Store())
                | ast.Attribute(attr=name, ctx=ast.Store())
                | ast.FunctionDef(name=str(name))
                | ast.AsyncFunctionDef(name=str(name))
                | ast.ClassDef(name=str(name))
                | ast.ExceptHandler(name=str(name))
                | ast.MatchAs(name=str(name))
                | ast.MatchStar(name=str(name))
                | ast.MatchMapping(rest=str(name))
                | ast.arg(arg=name)
                | ast.alias(asname=str(name))
            ):
                yield name


def test_nothing_names_a_machine() -> None:
    suspicious = re.compile(r"/work/|/tmp/v\b|(?<!\})/root/")
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()
    texts = [ROOT / n for n in names if not n.startswith("tests/recorded/")] or SOURCES
    found = [
        str(p)
        for p in texts
        if p.suffix in {".py", ".md", ".toml", ".yaml", ".c", ".sh", ""}
        and p.is_file()
        and p != Path(__file__)
        and suspicious.search(p.read_text(errors="ignore"))
    ]
    assert not found


def test_a_type_of_callback_is_named_once() -> None:
    # A callback that prints a line for the user is a ``Report`` everywhere, and no two modules define the same alias.
    aliases = Counter(
        (ast.unparse(node.targets[0]), ast.unparse(node.value))
        for path in SOURCES
        for node in tree(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Callable[")
    )
    assert ("Report", "Callable[[str], None]") in aliases
    assert not [alias for alias, count in aliases.items() if count > 1]
    spelled = {path.name for path in SOURCES if "Callable[[str], None]" in path.read_text()}
    # The exceptions: writes to a simulated file, and the output of a slow program.
    assert spelled == {"callbacks.py", "tree_entries.py", "bounded_process.py"}


def test_a_package_holds_nothing_but_its_modules() -> None:
    # Code lives in a module that is named after it, and a package can be renamed.
    inits = [p for p in SOURCES if p.name == "__init__.py" and p.parent.name != "aliquot"]
    full = [str(p.relative_to(ROOT)) for p in inits if any(not _is_text(n) for n in tree(p).body)]
    assert not full


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_folders_stay_readable() -> None:
    # A package with more than 30 modules must be split.
    counts = Counter(p.parent for p in SOURCES if p.name != "__init__.py")
    assert not {str(p.relative_to(ROOT)): n for p, n in counts.items() if n > 30}


def test_what_a_docstring_sends_its_reader_to_is_there() -> None:
    # A reference is a name of the same module or the end of a path: ``module``, ``package.module``, ``module.Class``.
    sends = re.compile(r"\b(?:[Ss]ee|[Ii]mplements) ``([A-Za-z_][\w.]*)``")
    modules = {tuple(p.relative_to(ROOT / "src").with_suffix("").parts): p for p in SOURCES if p.name != "__init__.py"}

    def is_there(name: str, text: str) -> bool:
        parts = tuple(name.split("."))
        if len(parts) == 1 and re.search(rf"\b{name}\b(?!``)", text):
            return True
        return any(
            path[-len(parts) :] == parts
            or (
                path[-len(parts) + 1 :] == parts[:-1]
                and re.search(rf"^ *(?:class |def )?{parts[-1]}\b", p.read_text(), re.M)
            )
            for path, p in modules.items()
        )

    texts = {p: p.read_text() for p in SOURCES}
    stale = [
        f"{p.relative_to(ROOT)}: {n}" for p, text in texts.items() for n in sends.findall(text) if not is_there(n, text)
    ]
    assert not stale


def test_units_stand_beside_the_packages_that_they_test() -> None:
    units = ROOT / "tests/unit"
    folders = {path.parent.relative_to(units) for path in units.rglob("*.py")}
    assert not {str(folder) for folder in folders if not (ROOT / "src/aliquot" / folder).is_dir()}


def test_files_stay_readable() -> None:
    # Aim at 80-200 lines. A file with more than 400 lines must be split.
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_functions_stay_readable() -> None:
    # A function has at most 40 lines. Ruff limits the complexity.
    long = {
        f"{path.relative_to(ROOT)}: {node.name}": lines
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > 40
    }
    assert not long


def test_the_version_is_one_constant() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", aliquot.__version__)
