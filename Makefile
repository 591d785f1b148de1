# Every target makes its own environment in .venv. Needs: make, gcc, python3 (3.11 or later) with venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.DEFAULT_GOAL := help

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 20

$(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Aliquot needs Python 3.11 or later: make PYTHON=python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

setup: $(VENV)/.dev   ## the working environment

demo: $(VENV)/.demo   ## the main job on a simulated 8-GPU node
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/demo.sh

$(VENV)/.page: $(VENV)/.demo
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dashboard]'
	@touch $@

dashboard: $(VENV)/.page   ## a simulated fleet with holes and drift, and the web page over it, until Ctrl-C
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/dashboard.sh

demo-kubernetes: $(VENV)/.dev   ## the agent in a cluster on this machine, told with kubectl
	@$(BIN)/python tools/sandbox.py --story

sandbox: $(VENV)/.dev   ## the same cluster, kept running for you until Ctrl-C
	@$(BIN)/python tools/sandbox.py

demo-machines: $(VENV)/.dev   ## GPUs for virtual machines in a cluster on this machine, told with kubectl
	@$(BIN)/python tools/sandbox.py --machines --story

sandbox-machines: $(VENV)/.dev   ## the same cluster, kept running for you until Ctrl-C
	@$(BIN)/python tools/sandbox.py --machines

demo-slurm: $(VENV)/.dev   ## a private real Slurm on this machine: layouts follow the jobs, told with squeue and sinfo
	@$(BIN)/python tools/sandbox_slurm.py

check: $(VENV)/.dev   ## format, lint, types, import contracts
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	@$(BIN)/mypy

# Servers, browsers and guests on a busy machine are now and then late for a test's patience: what fails there is tried once
# more, and shown with its first failure either way. What is pure has no such excuse.
AGAIN := --reruns 1 --max-suite-reruns 10 --reruns-delay 2 --rerun-show-tracebacks $(addprefix --rerun-exclude-path tests/,unit property oracle architecture)

test: check   ## everything that must pass; skips what cannot start here and lists it
	@$(BIN)/python -m pytest -n 3 --dist worksteal -rsR $(AGAIN)

test-fast: $(VENV)/.dev   ## the working day's tests, 90 s at most
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --ignore tests/crash

vm-kernel: $(VENV)/.dev   ## the kernel of the guest that test-vm boots: downloaded (85 MB) and kept in the cache
	@$(BIN)/python tests/vm/run.py prepare

test-vm: vm-kernel   ## our code on a real kernel with real libvirt, in an emulated machine
	@ALIQUOT_REQUIRE=vm $(BIN)/python -m pytest -n 0 -rs tests/vm

slurm-trixie: $(VENV)/.dev   ## Debian 13, its Slurm and docker, for the tests: downloaded (150 MB) and kept in the cache
	@$(BIN)/python tests/slurm/prepare.py

bench: $(VENV)/.dev   ## figures for benchmarks/RESULTS.md
	@$(BIN)/python benchmarks/run.py

docs: $(VENV)/.dev       ## the pages as a site, in site/
	@$(BIN)/python tools/build_docs.py
	@$(BIN)/python tools/build_site.py

docs-check: $(VENV)/.dev   ## every command of the pages is typed (PAGE=docs/tutorial.md: of one)
	@cd tests && ../$(BIN)/python -m docs $(if $(PAGE),$(abspath $(PAGE)))

docs-update: $(VENV)/.dev   ## ... and what it prints is written into them
	@$(BIN)/python tools/build_docs.py
	@cd tests && ../$(BIN)/python -m docs --update $(if $(PAGE),$(abspath $(PAGE)))

pictures: $(VENV)/.dev   ## the pages' pictures in docs/pictures, taken anew in Chromium
	@cd tests && ../$(BIN)/python -m browser.pictures $(CURDIR)/docs/pictures

catalog: $(VENV)/.dev   ## packaged JSON from the reviewed YAML
	@$(BIN)/python tools/build_catalog.py

clean:           ## remove what the targets above made
	@rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build site

.PHONY: help setup demo dashboard demo-kubernetes sandbox demo-machines sandbox-machines demo-slurm check test test-fast vm-kernel test-vm slurm-trixie bench docs docs-check docs-update pictures catalog clean
