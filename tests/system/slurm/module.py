"""A module of Ansible, which comes as a script on stdin: ``python -m system.slurm.module < SCRIPT``.

A script has Ansible's own files in an archive, which each would import again. This process has them: the fork server
imports them once.
"""

import contextlib
import importlib
import sys

with contextlib.suppress(ImportError):
    importlib.import_module("ansible.module_utils.basic")

if __name__ == "__main__":
    exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"))
