"""A real Prometheus of our own: its configuration, data and port are not those of a packaged service."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from support.processes import until

PATIENCE_S = 60.0
ROOT = Path(__file__).resolve().parents[3]
RULES = ROOT / "deploy/prometheus/aliquot.rules.yaml"
MISSING = next((f"{name} is not installed" for name in ("prometheus", "promtool") if shutil.which(name) is None), "")
Sample = tuple[dict[str, str], float]


class Prometheus:
    """A Prometheus process. ``targets`` are jobs and the addresses that they scrape once a second; ``rules`` is a file
    of rules.
    """

    def __init__(self, folder: Path, targets: Mapping[str, Sequence[str]], rules: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        jobs = [{"job_name": name, "static_configs": [{"targets": list(each)}]} for name, each in targets.items()]
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "scrape_configs": jobs,
        }
        if rules is not None:
            config["rule_files"] = [str(rules)]
        path = folder / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        self._log = folder / "prometheus.log"
        words = [f"--config.file={path}", f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0"]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                ["prometheus", *words], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder
            )
        self.port = 0
        try:
            self.until(self._listens, "Prometheus to listen")
        except BaseException:
            self.close()
            raise

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        found = re.search(r'msg="Listening on" address=127\.0\.0\.1:(\d+)', self._log.read_text())
        self.port = int(found.group(1)) if found else 0
        return bool(found) and self._get("/-/ready")[0] == 200

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def api(self, path: str, **query: str) -> Any:
        """Return the data of a successful answer."""
        status, body = self._get(f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
        answer = json.loads(body)
        assert answer["status"] == "success", (status, query, answer)
        return answer["data"]

    def query(self, expression: str) -> list[Sample]:
        """Return an instant vector: labels without the target's, and values."""
        found = self.api("query", query=expression)["result"]
        return [
            ({k: v for k, v in row["metric"].items() if k not in ("job", "instance")}, float(row["value"][1]))
            for row in found
        ]

    def value(self, expression: str) -> float | None:
        """Return the only value, or None if there is none."""
        found = self.query(expression)
        assert len(found) < 2, (expression, found)
        return found[0][1] if found else None

    def alerts(self, name: str) -> list[dict[str, Any]]:
        return [each for each in self.api("alerts")["alerts"] if each["labels"]["alertname"] == name]

    def until(self, true: Callable[[], object], what: str, seconds: float = PATIENCE_S) -> None:
        """Wait until something holds."""

        def why() -> str:
            targets = self.api("targets")["activeTargets"] if self.port else []
            return f"{what}\n{[target['lastError'] for target in targets]}"

        until(true, why, seconds, pause_s=0.1)


def check_metrics(page: bytes) -> str:
    """Return promtool's complaint about a page in classic text, or "" if there is none."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, timeout=60)
    return "" if done.returncode == 0 else (done.stdout + done.stderr).decode() or f"exit {done.returncode}"


def promtool(*words: str) -> str:
    """Return the output of a run that must succeed."""
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
