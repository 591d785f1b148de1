#!/bin/sh
# The guest's first program on the host's files (through an overlay: no write here reaches the host).
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mkdir -p /dev/pts /dev/shm /run/lock
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# Programs expect these (mdevctl reads /dev/stdin); udev does not run yet.
ln -sfn /proc/self/fd /dev/fd
ln -sfn /proc/self/fd/0 /dev/stdin
ln -sfn /proc/self/fd/1 /dev/stdout
ln -sfn /proc/self/fd/2 /dev/stderr
ip link set lo up 2>/dev/null || busybox ip link set lo up
echo "the guest is up after $(cut -d' ' -f1 /proc/uptime) s"
python=$(sed -n 's/.*"python": "\([^"]*\)".*/\1/p' /run/plan.json)
tests=$(sed -n 's/.*"tests": "\([^"]*\)".*/\1/p' /run/plan.json)
PYTHONPATH="$tests:$tests/../src" "$python" -m system.vm.inside </dev/null  # the console has no input
echo "the checks ended with $?"
sync
busybox poweroff -f
