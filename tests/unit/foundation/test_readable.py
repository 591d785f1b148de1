"""Waiting for a file descriptor of any number."""

from __future__ import annotations

import fcntl
import os
import resource

from aliquot.foundation.descriptor_wait import wait_readable


def test_a_descriptor_above_what_select_takes() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2048, hard), hard))
    reading, writing = os.pipe()
    high = fcntl.fcntl(reading, fcntl.F_DUPFD, 1100)
    try:
        assert not wait_readable(high, 0.01)
        os.write(writing, b"x")
        assert wait_readable(high, 1.0)
        os.close(writing)
        os.read(high, 1)
        assert wait_readable(high, 1.0), "its end can be read as well"
    finally:
        os.close(high)
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
