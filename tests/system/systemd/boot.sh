#!/bin/sh
# A real systemd as process 1 of its own process, mount and control group namespaces: boot.sh FOLDER NAME SYSTEMD
# FOLDER holds units/; NAME is the control group to make. Only cgroup2 is used, so that no controller is touched.
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir /run/cgroup /run/dbus /run/systemd
mount -t cgroup2 none /run/cgroup
mkdir "/run/cgroup/$2"
echo $$ >"/run/cgroup/$2/cgroup.procs"
umount /run/cgroup
rmdir /run/cgroup
mount --bind "$1/units" /etc/systemd/system
export container=test SYSTEMD_UNIT_PATH=/etc/systemd/system
# shellcheck disable=SC2016
exec unshare --cgroup sh -c 'mount -t cgroup2 none /sys/fs/cgroup && exec "$0" --system --unit=test.target --log-target=console --show-status=no' "$3"
