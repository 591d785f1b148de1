"""Generate the table of docs/metrics.md, the Grafana dashboard, and the PrometheusRule for the Operator from the table
of metrics and from the rules.

Usage: python tools/build_metrics.py [--check] exit 1 if --check finds a difference
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.metrics_dashboard import dashboard

from aliquot.metrics.labels import MEANINGS
from aliquot.metrics.metric import PROCESSES
from aliquot.metrics.registry import TABLE

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/metrics.md"
RULES = ROOT / "deploy/prometheus/aliquot.rules.yaml"
BEGIN, END = "<!-- made by tools/build_metrics.py: begin -->", "<!-- end -->"
HEAD = """\
# Made by tools/build_metrics.py from aliquot.rules.yaml: change it there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: aliquot
  namespace: gpu-operator
  labels:
    app.kubernetes.io/name: aliquot
    app.kubernetes.io/component: metrics
spec:
"""


def table() -> Iterator[str]:
    """Yield every metric by the processes that have it, then every label."""
    by: dict[tuple[str, ...], list[str]] = {}
    for row in TABLE:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        by.setdefault(row.by, []).append(f"| `{row.name}` | {row.type} | {labels} | {row.help} |")
    for who, rows in by.items():
        yield f"#### On the pages of {', '.join(PROCESSES[each] for each in who)}"
        yield ""
        yield "| name | type | labels | meaning |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""
    yield "#### Labels"
    yield ""
    yield "| label | meaning |"
    yield "|---|---|"
    used = {label for row in TABLE for label in row.labels}
    yield from (f"| `{label}` | {meaning} |" for label, meaning in MEANINGS.items() if label in used)


def page(text: str) -> str:
    """Return the page with its table generated again."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n" + "\n".join(table()) + f"\n\n{END}{after}"


def files() -> dict[Path, str]:
    rules = [line for line in RULES.read_text().splitlines() if not line.startswith("#")]
    return {
        PAGE: page(PAGE.read_text()),
        RULES.with_name("aliquot.dashboard.json"): json.dumps(dashboard(), indent=1) + "\n",
        RULES.with_name("prometheusrule.yaml"): HEAD + "".join(f"  {line}\n" if line else "\n" for line in rules),
    }


def main() -> int:
    stale = [path for path, text in files().items() if not path.exists() or path.read_text() != text]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in sys.argv[1:]:
        print(
            f"{names}: stale: run python tools/build_metrics.py" if stale else "what is made of the metrics is current"
        )
        return 1 if stale else 0
    for path, text in files().items():
        path.write_text(text)
    print(f"wrote {names or 'nothing'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
