"""Usage of GPU instances from the page of a dcgm-exporter, over real HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
import pytest

from aliquot.core.model.usage import Usage
from aliquot.errors import UsageError
from aliquot.node.dcgm_exporter import DcgmExporter, shares
from support.factory import inventory

NODE = inventory("a100-sxm4-40gb*2", enabled=True)
ONE, TWO = NODE.gpus

# The format is that of dcgm-exporter 3.3 and 4.1 (their issues 53 and 512).
PAGE = f"""# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{ONE.uuid}",pci_bus_id="00000000:07:00.0",device="nvidia0",\
modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="3g.20gb",GPU_I_ID="2",Hostname="n"}} 0.375000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{ONE.uuid}",GPU_I_PROFILE="7g.40gb",GPU_I_ID="0",Hostname="n",pod=""}} 1
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="1",UUID="{TWO.uuid}",Hostname="n"}} 0.9
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="1",UUID="{TWO.uuid}",GPU_I_ID="7",Hostname="n"}} 18446744073709551616.000000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="1",UUID="{TWO.uuid}",GPU_I_ID="8",Hostname="n"}} 0.125 1700000000000
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="1",UUID="{TWO.uuid}",GPU_I_ID="9",Hostname="n"}} 0.5
"""


def test_a_page() -> None:
    assert shares(PAGE) == {(ONE.uuid, 2): 0.375, (ONE.uuid, 0): 1.0, (TWO.uuid, 8): 0.125}


@pytest.mark.parametrize("page", ["", "nonsense", "DCGM_FI_PROF_GR_ENGINE_ACTIVE{} x", "<html>" * 1000])
def test_nonsense_is_nothing(page: str) -> None:
    assert shares(page) == {}


class Site:
    """An exporter that answers with ``page`` and that status."""

    def __init__(self) -> None:
        site = self
        self.page, self.status, self.asked = PAGE, 200, 0

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked += 1
                self.send_response(site.status)
                self.end_headers()
                self.wfile.write(site.page.encode())

            def log_message(self, *_: object) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def test_only_what_was_not_reported_is_filled(site: Site) -> None:
    known = Usage(ONE.pci, 0, "7g.40gb", compute=0.2, source="gpm")
    bare, other, whole = Usage(ONE.pci, 2), Usage(TWO.pci, 2), Usage(TWO.pci)
    found = DcgmExporter(site.url).fill(NODE, (known, bare, other, whole))
    assert found == (known, msgspec.structs.replace(bare, compute=0.375, source="dcgm"), other, whole)
    (zero,) = DcgmExporter(site.url).fill(NODE, (Usage(ONE.pci, 0),))
    assert zero.compute == 1.0


def test_it_is_asked_only_where_something_is_missing(site: Site) -> None:
    DcgmExporter(site.url).fill(NODE, (Usage(ONE.pci, 0, compute=0.2, source="gpm"), Usage(TWO.pci)))
    assert site.asked == 0


def test_a_failure_is_logged_once_until_it_is_over(site: Site) -> None:
    messages: list[str] = []
    exporter, bare = DcgmExporter(site.url, messages.append), (Usage(ONE.pci, 2),)
    site.status = 503
    assert exporter.fill(NODE, bare) == bare
    exporter.fill(NODE, bare)
    assert len(messages) == 1
    site.status, site.page = 200, "other_metric 1\n"
    exporter.fill(NODE, bare)
    assert "it has no DCGM_FI_PROF_GR_ENGINE_ACTIVE" in messages[1]
    site.page = PAGE
    assert exporter.fill(NODE, bare) != bare
    site.status = 503
    exporter.fill(NODE, bare)
    assert len(messages) == 3


def test_an_exporter_that_is_unavailable() -> None:
    messages: list[str] = []
    bare = (Usage(ONE.pci, 2),)
    assert DcgmExporter("http://127.0.0.1:1/metrics", messages.append).fill(NODE, bare) == bare
    assert messages == ["no shares from http://127.0.0.1:1/metrics: [Errno 111] Connection refused"]


@pytest.mark.parametrize("url", ["", "foo", "file:///etc/passwd", "ftp://x/metrics", "http://", "http:// x"])
def test_only_pages_are_read(url: str) -> None:
    with pytest.raises(UsageError, match="is not the address"):
        DcgmExporter(url)


@pytest.mark.parametrize(
    "url",
    ["http://[::1:9400/metrics", "http://a..b/metrics", "http://127.0.0.1:1/größe", "http://x:port/"],
)
def test_an_unreachable_address_is_an_error_to_retry(url: str) -> None:
    messages: list[str] = []
    bare = (Usage(ONE.pci, 2),)
    assert DcgmExporter(url, messages.append).fill(NODE, bare) == bare
    assert len(messages) == 1
