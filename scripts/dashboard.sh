#!/bin/sh
# A small simulated fleet to look at: holes, jobs, drift, shared cards, whole GPUs. Then the page over it, until Ctrl-C.
set -eu
ALIQUOT_STATE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/aliquot-fleet.XXXXXX")
export ALIQUOT_STATE_DIR
trap 'aliquot sim stop --all >/dev/null 2>&1; rm -rf "$ALIQUOT_STATE_DIR"' EXIT
trap 'exit 0' INT TERM

quietly() { "$@" >"$ALIQUOT_STATE_DIR/said" 2>&1 || { cat "$ALIQUOT_STATE_DIR/said" >&2; exit 1; }; }
start() { quietly aliquot sim start "$1" --name "$2"; }
cut() { quietly aliquot apply --yes --sim "$1" --gpu "$2" --mig "$3"; }
hold() { quietly aliquot sim hold "$2" "$3" --sim "$1" --memory "$4"; }

echo "starting a simulated fleet ..." >&2
start dgx-h100 train-1
start h100-80gb-hbm3*4 train-2
start a30*4 infer-1
start a2:mdev*2 desks-1
start a100-sxm4-40gb*2,tesla-t4 lab

cut train-1 0-2 3g.40gb*2
cut train-1 3 7g.80gb
hold train-1 0 1 21000
hold train-1 3 0 60000
# A small instance in each half, so that no 3g.40gb fits although six slices are free.
cut train-2 0 1g.10gb@1,1g.10gb@4
cut train-2 1 2g.20gb@0,1g.10gb@5
hold train-2 1 3 9000
cut infer-1 0-1 1g.6gb*4
hold infer-1 0 3 2100
quietly aliquot apply --yes --sim desks-1 --gpu 0 --vgpu A2-4Q*3
cut lab 0 3g.20gb@0,2g.10gb@4,1g.5gb@6
# An instance is destroyed by hand.
quietly aliquot sim destroy 0 1 --sim lab
aliquot dashboard --fleet "$@"
