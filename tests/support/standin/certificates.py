"""A certificate for 127.0.0.1 and localhost, created once per process.

``kubectl`` sends its token only over an encrypted connection, so the stand-in speaks TLS.
"""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def certificate() -> tuple[Path, Path]:
    """Return the certificate, which is its own authority, and its key.

    Raises:
        FileNotFoundError: ``openssl`` is not installed
    """
    folder = Path(tempfile.mkdtemp(prefix="standin-tls-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    certificate, key = folder / "ca.crt", folder / "key"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    make += ["-subj", "/CN=standin", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-days", "30"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
