#!/bin/sh
# Epilog=/usr/local/libexec/aliquot/epilog.sh
# Removes the job from dcgm-exporter's mapping of its GPUs. Errors are only logged, because an Epilog that fails drains
# the node.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
said=$(timeout 10 "${ALIQUOT:-aliquot}" slurm dcgm end 2>&1) || logger -t aliquot "job $SLURM_JOB_ID: $said" || true
exit 0
