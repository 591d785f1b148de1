#!/bin/sh
# Restarts slurmctld on its host, with options for this start alone. For aliquot slurm apply --slurmctld-restart
#   'ssh CONTROLLER /usr/local/libexec/aliquot/slurmctld-restart.sh $ALIQUOT_SLURMCTLD_OPTIONS'
# Aliquot passes -R when it is safe: slurmctld then keeps the states of nodes, and steps of running jobs go on.
set -eu
drop_in=/run/systemd/system/slurmctld.service.d/aliquot.conf options=/run/aliquot-slurmctld
for each in /etc/default/slurmctld /etc/sysconfig/slurmctld; do
    [ ! -r "$each" ] || . "$each"
done
if [ ! -e "$drop_in" ]; then
    mkdir -p "${drop_in%/*}"
    printf '[Service]\nEnvironmentFile=-%s\n' "$options" >"$drop_in"
    systemctl daemon-reload
fi
trap 'exit 1' HUP INT TERM
trap 'rm -f "$options"' EXIT # systemd has read it when the restart returns
echo "SLURMCTLD_OPTIONS=${SLURMCTLD_OPTIONS:-} $*" >"$options"
systemctl restart slurmctld
