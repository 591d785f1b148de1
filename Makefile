# Every target makes its own environment in .venv. Needs: make, gcc, python3 (3.11 or later) with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help
# Without bytecode each interpreter that a test starts compiles Aliquot again.
unexport PYTHONDONTWRITEBYTECODE

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

$(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Aliquot needs Python 3.11 or later: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml
	@PYTHON='$(PYTHON)' MAKE='$(MAKE)' sh scripts/environment.sh
	@touch $(VENV)/.demo $(VENV)/.page $(VENV)/.clusters $@

setup: $(VENV)/.dev   ## the working environment

demo: $(VENV)/.demo   ## the main job on a simulated 8-GPU node
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

$(VENV)/.page: $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dashboard]'
	@touch $@

dashboard: $(VENV)/.page   ## a simulated fleet with holes and drift, and the web page over it, until Ctrl-C
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/dashboard.sh

$(VENV)/.clusters: $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[agent,server]' --group demo
	@touch $@

demo-kubernetes: $(VENV)/.clusters   ## the agent in a cluster on this machine, told with kubectl
	@$(RUN) $(BIN)/python tools/sandbox.py --story

sandbox: $(VENV)/.clusters   ## the same cluster, kept running for you until Ctrl-C
	@$(RUN) $(BIN)/python tools/sandbox.py

demo-machines: $(VENV)/.clusters   ## GPUs for virtual machines in a cluster on this machine, told with kubectl
	@$(RUN) $(BIN)/python tools/sandbox.py --machines --story

sandbox-machines: $(VENV)/.clusters   ## the same cluster until Ctrl-C (NODES="node3=t4:mdev:bus08" adds, ALL_DEVICES=1 serves all)
	@$(RUN) $(BIN)/python tools/sandbox.py --machines $(NODES:%=--node %) $(if $(ALL_DEVICES),--all-devices)

demo-slurm: $(VENV)/.demo   ## a private real Slurm on this machine: layouts follow the jobs, told with squeue and sinfo
	@$(RUN) $(BIN)/python tools/sandbox_slurm.py

sandbox-slurm: $(VENV)/.demo   ## a shell on a host of the same Slurm (BOARDS=1: one that can become a slot board), which ends with the shell
	@$(RUN) $(BIN)/python tools/sandbox_slurm.py --shell $(if $(BOARDS),--boards)

check: $(VENV)/.dev   ## format, lint, types, import contracts, plain English
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/mypy
	@$(BIN)/python tools/prose_lint.py

# No process outlives a run: servers, daemons and containers end with it, also after SIGKILL.
RUN := $(BIN)/python tools/contained.py
PYTEST := $(BIN)/python -m pytest -n auto -rsR --rerun-show-tracebacks --max-suite-reruns 10
# CPU seconds and wall seconds that a run should take on 2 idle cores, and the CPU seconds above which it fails.
BUDGET := --budget 1500,1200,5000

test: $(VENV)/.dev   ## everything that must pass, and a tenth of what is long; skips what cannot start here and lists it
	@$(RUN) $(BUDGET) sh -c '$(MAKE) --no-print-directory check && $(PYTEST)'

test-all: check   ## all tests: complete oracles and properties, every mutant, everything that is long
	@ALIQUOT_ALL=1 $(RUN) $(PYTEST)

test-pure: check   ## what needs no server, 3 minutes at most
	@$(RUN) $(BIN)/python -m pytest -n auto tests/unit tests/laws/property tests/laws/oracle tests/architecture tests/contract

test-fast: $(VENV)/.dev   ## the working day's tests, 90 s at most
	@$(RUN) $(BIN)/python -m pytest -n auto -m "not slow and not long" tests/unit tests/laws/property tests/laws/oracle tests/architecture tests/system/cli tests/system/sim

vm-kernel: $(VENV)/.dev   ## the kernel of the guest that test-vm boots: downloaded (85 MB) and kept in the cache
	@$(BIN)/python tests/system/vm/run.py prepare

test-vm: vm-kernel   ## our code on a real kernel with real libvirt, in an emulated machine
	@ALIQUOT_REQUIRE=vm $(BIN)/python -m pytest -n 0 -rs tests/system/vm

slurm-trixie: $(VENV)/.dev   ## Debian 13, its Slurm and docker, for the tests: downloaded (150 MB) and kept in the cache
	@$(BIN)/python tests/system/slurm/prepare.py

bench: $(VENV)/.dev   ## figures for benchmarks/RESULTS.md
	@$(BIN)/python benchmarks/run.py

docs: $(VENV)/.dev       ## the pages as a site, in site/
	@$(BIN)/python tools/build_docs.py
	@$(BIN)/python tools/build_site.py

docs-check: $(VENV)/.dev   ## every command of the pages is typed (PAGE=docs/tutorial.md: of one)
	@cd tests && ../$(BIN)/python -m system.docs $(if $(PAGE),$(abspath $(PAGE)))

docs-update: $(VENV)/.dev   ## ... and what it prints is written into them
	@$(BIN)/python tools/build_docs.py
	@cd tests && ../$(BIN)/python -m system.docs --update $(if $(PAGE),$(abspath $(PAGE)))

pictures: $(VENV)/.dev   ## the pages' pictures in docs/pictures, taken anew in Chromium
	@cd tests && ../$(BIN)/python -m system.browser.pictures $(CURDIR)/docs/pictures

catalog: $(VENV)/.dev   ## packaged JSON from the reviewed YAML
	@$(BIN)/python tools/build_catalog.py

lock: $(VENV)/.dev   ## the image's packages with their hashes, and its bill of materials
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tools/build_lock.py

clean:           ## remove what the targets above made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build site

.PHONY: help setup demo dashboard demo-kubernetes sandbox demo-machines sandbox-machines demo-slurm sandbox-slurm check test test-all test-pure test-fast vm-kernel test-vm slurm-trixie bench docs docs-check docs-update pictures catalog lock clean
