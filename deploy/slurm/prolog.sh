#!/bin/sh
# Prolog=/usr/local/libexec/aliquot/prolog.sh   (and PrologFlags=Alloc, so that it runs before the first step)
# Writes dcgm-exporter's mapping of jobs to GPUs. Errors are only logged, because a Prolog that fails drains the node and
# requeues the job.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:$PATH
said=$(timeout 10 "${ALIQUOT:-aliquot}" slurm dcgm begin 2>&1) || logger -t aliquot "job $SLURM_JOB_ID: $said" || true
exit 0
