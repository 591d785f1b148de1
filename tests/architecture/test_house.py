"""The house: floors, errors, words, packaged data."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import aliquot
from aliquot import errors

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted((ROOT / "src/aliquot").rglob("*.py"))


def test_every_error_has_a_code_and_a_documented_exit_code() -> None:
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.AliquotError)]
    codes = [c.code for c in classes]
    assert len(set(codes)) == len(codes)
    assert {c.exit_code for c in classes} <= {1, 2, 20, 30, 40, 130}
    assert all(c.__doc__ for c in classes)


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


def test_files_stay_readable() -> None:
    """Aim at 80-200 lines; above 320 a file must be split."""
    long = {str(p.relative_to(ROOT)): n for p in SOURCES if (n := len(p.read_text().splitlines())) > 320}
    assert not long


def test_the_version_is_one_constant() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", aliquot.__version__)
