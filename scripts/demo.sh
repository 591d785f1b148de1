#!/bin/sh
# The whole idea on a simulated 8-GPU node: show, plan, apply, verify, break it by hand, see the drift, heal it.
set -u
exec </dev/null  # a script is not asked
ALIQUOT_STATE_DIR=$(mktemp -d "${TMPDIR:-/tmp}/aliquot-demo.XXXXXX")
export ALIQUOT_STATE_DIR
trap 'aliquot sim stop --all >/dev/null 2>&1; rm -rf "$ALIQUOT_STATE_DIR"' EXIT INT TERM

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then bold=$(printf '\033[1m') plain=$(printf '\033[0m'); fi
step() { printf '\n%s$ %s%s\n' "$bold" "$*" "$plain"; }
run() { want=$1; shift; step "$@"; "$@"; got=$?; [ "$got" = "$want" ] || { echo "demo: exit $got, expected $want"; exit 1; }; }

cat >"$ALIQUOT_STATE_DIR/train.yaml" <<'YAML'
version: aliquot/v1
configs:
  train:
    - gpus: {index: "0-3"}
      mig: {3g.40gb: 2}
    - gpus: {index: "4-6"}
      mig: {1g.10gb: 5, 2g.20gb: 1}
  infer:
    - gpus: {index: "0-3"}
      mig: {3g.40gb: 1, 2g.20gb: 1, 1g.10gb: 1}
    - gpus: {index: "4-6"}
      mig: {1g.10gb: 5, 2g.20gb: 1}
YAML
cd "$ALIQUOT_STATE_DIR" || exit 1

run 0 aliquot sim start dgx-h100 --name demo
ALIQUOT_SIM=demo
export ALIQUOT_SIM
run 0 aliquot show
run 10 aliquot plan -f train.yaml -c train
run 0 aliquot apply -f train.yaml -c train
run 0 aliquot verify -f train.yaml -c train
printf '\n# a job starts on one 3g.40gb of GPU 0; a new config needs the other half\n'
run 0 aliquot sim hold 0 1
run 10 aliquot plan -f train.yaml -c infer
run 0 aliquot apply -f train.yaml -c infer
printf '\n# an administrator destroys an instance by hand\n'
run 0 aliquot sim destroy 4 7
run 30 aliquot verify -f train.yaml -c infer
run 0 aliquot apply -f train.yaml -c infer
run 0 aliquot verify -f train.yaml -c infer
printf '\n# a request that would destroy the held instance is refused\n'
run 20 aliquot plan --gpu 0 --mig 7g.80gb
printf '\nDone: planned, applied, verified, broken, healed. Now try: .venv/bin/aliquot --help\n'
