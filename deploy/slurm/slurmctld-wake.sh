#!/bin/sh
# EpilogSlurmctld= in slurm.conf, on slurmctld's host beside the controller: wakes it when a job has ended.
# It never waits and never fails. The controller creates the file for SlurmUser; its settings name it: history, and .wake
touch -c /var/lib/aliquot/slurm-controller.json.wake 2>/dev/null
exit 0
