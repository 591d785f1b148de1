#!/bin/sh
# TaskProlog=/usr/local/libexec/aliquot/task-prolog.sh
# Sets the UUIDs of its MIG devices for each task. The task runs even after an error.
command -v "${ALIQUOT:-aliquot}" >/dev/null 2>&1 || exit 0
timeout 10 "${ALIQUOT:-aliquot}" slurm task-prolog || true
exit 0
