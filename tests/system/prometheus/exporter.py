"""A page as dcgm-exporter writes it, of a simulated machine's GPUs, with its labels, their order and spelling.

Source: NVIDIA/dcgm-exporter, internal/pkg/rendermetrics/render_metrics.go (the format of GPU metrics) and published
pages. ``UUID`` is the GPU's also on lines about instances, ``pci_bus_id`` has eight digits of domain.
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = dict[str, Any]


def page(machine: JSON, hostname: str) -> str:
    """Return invented values: memory in use and engine activity of each instance, temperature of each GPU."""
    lines: dict[str, list[str]] = {
        "DCGM_FI_DEV_FB_USED": [],
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": [],
        "DCGM_FI_DEV_GPU_TEMP": [],
    }
    for index, gpu in enumerate(machine["gpus"]):
        head = f'gpu="{index}",UUID="{gpu["uuid"]}",pci_bus_id="0000{gpu["pci"].upper()}",'
        head += f'device="nvidia{gpu["minor"]}",modelName="{gpu["product"]}"'
        tail = f'Hostname="{hostname}",DCGM_FI_DRIVER_VERSION="580.65.06"'
        lines["DCGM_FI_DEV_GPU_TEMP"].append(f"DCGM_FI_DEV_GPU_TEMP{{{head},{tail}}} 31")
        for each in gpu["instances"]:
            inner = f'GPU_I_PROFILE="{each["profile"]}",GPU_I_ID="{each["id"]}"'
            for name, value in (("DCGM_FI_DEV_FB_USED", 100 + each["id"]), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.5)):
                lines[name].append(f"{name}{{{head},{inner},{tail}}} {value}")
    return "".join(f"# HELP {n} of DCGM\n# TYPE {n} gauge\n" + "\n".join(rows) + "\n" for n, rows in lines.items())


class Exporter:
    """An HTTP server that serves that page until the end of a ``with``."""

    def __init__(self, machine: JSON, hostname: str) -> None:
        text = page(machine, hostname).encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Exporter:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
