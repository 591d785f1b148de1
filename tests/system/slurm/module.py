"""Runner for an Ansible module, which comes as a script on stdin: ``python -m system.slurm.module < SCRIPT``.

A script has Ansible's own files in an archive and would import them each time. The fork server has imported them once,
so this process has them already.
"""

import contextlib
import importlib
import sys

with contextlib.suppress(ImportError):
    importlib.import_module("ansible.module_utils.basic")

if __name__ == "__main__":
    exec(compile(sys.stdin.buffer.read(), "<stdin>", "exec"))
