#!/bin/sh
# TaskProlog=/usr/local/libexec/aliquot/task-prolog.sh
# Tells each task the UUIDs of its MIG devices. Whatever goes wrong, the task runs.
command -v "${ALIQUOT:-aliquot}" >/dev/null 2>&1 || exit 0
timeout 10 "${ALIQUOT:-aliquot}" slurm task-prolog || true
exit 0
