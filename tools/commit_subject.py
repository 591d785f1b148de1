"""Check the subject of a commit message: an area, a colon, an imperative sentence, at most 72 characters.

Usage: python tools/commit_subject.py FILE     exit 1 with the reason where it is not so
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST = 72
AREA = re.compile(r"[a-z0-9][a-z0-9./_-]*(?:,? [a-z0-9][a-z0-9./_-]*)*: \S")
NOT_IMPERATIVE = re.compile(r": (?:[Aa]dded|[Ff]ixed|[Cc]hanged|[Rr]emoved|[Uu]pdated|[Rr]enamed|[Mm]oved)\b")


def wrong(subject: str) -> str:
    """Return what is wrong with a subject, or "". Merges, reverts and fixups keep the words that git gives them."""
    if re.match(r"(?:Merge|Revert|fixup!|squash!) ", subject):
        return ""
    if len(subject) > MOST:
        return f"the subject has {len(subject)} characters, {MOST} are the most"
    if not AREA.match(subject):
        return "the subject begins with an area and a colon: 'slurm: refuse before draining'"
    if NOT_IMPERATIVE.search(subject):
        return "the subject is imperative: 'add', not 'added'"
    return "the subject ends without a full stop" if subject.endswith(".") else ""


def main() -> int:
    subject = next(iter(Path(sys.argv[1]).read_text().splitlines()), "")
    if why := wrong(subject):
        print(f"{why}\n  {subject}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
