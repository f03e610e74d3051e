# Every target sets up what it needs: a virtual environment in .venv, from requirements.lock.
# ARGS reaches the command behind a target: make test ARGS="-k sliding -x"

ARGS ?=
BENCH ?= engine
MINUTES ?= 10
SECONDS ?= 60
HOURS ?= 1

PY := .venv/bin/python
READY := .venv/.stamp
# Spark starts in half of the time with it.
CLASSES := .venv/.classes

.DEFAULT_GOAL := help
.PHONY: help run picture test test-extended test-all check lint format types imports generated locked proto crds fmt bench faults soak images e2e e2e-all cluster cluster-images cluster-down properties fuzz lock clean

help: ## this list
	@echo 'Headwater: exact windows over IoT event streams. Needs Python 3.11+ and make; each target does its own set-up.'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  ARGS="..." is passed on, e.g.  make test ARGS="-k sliding -x"   make bench ARGS=--quick'

# What `make run` runs; `make picture` records it.
FIRST := run examples/plant.yaml --verify --baseline --output build/run

run: $(if $(findstring engine embedded,$(ARGS)),$(READY),$(CLASSES)) ## a bottling plant through a tree of processes: windows as they close, checked against the oracle
	@$(PY) -m headwater_cli $(FIRST) $(ARGS)

picture: $(CLASSES) ## docs/run.svg anew, from what `make run` runs
	@$(PY) -m headwater_cli $(FIRST) --svg docs/run.svg $(ARGS)

# One worker more than cores, four at most: tests of real processes wait for a third of their time. A worker that
# has nothing left takes tests of one that has.
CORES := $(shell getconf _NPROCESSORS_ONLN)
PARALLEL := --numprocesses $(shell echo $$(($(CORES) < 4 ? $(CORES) + 1 : 4))) --dist worksteal

test: $(CLASSES) ## the tests that CI runs, with Hypothesis against the oracle
	@$(PY) -m pytest $(PARALLEL) -m 'not extended' $(ARGS)

test-extended: $(CLASSES) ## the tests that take too long for CI (CONTRIBUTING.md lists them)
	@$(PY) -m pytest $(PARALLEL) -m extended $(ARGS)

test-all: $(CLASSES) ## all tests that need no cluster
	@$(PY) -m pytest $(PARALLEL) $(ARGS)

check: lint format types imports generated locked ## what CI checks: ruff, formatting, mypy, import contracts, generated code, lock file (-k: all in spite of failures)

lint: $(READY)
	@echo 'check: ruff'
	@$(PY) -m ruff check --quiet .

format: $(READY)
	@echo 'check: formatting (remedy: make fmt)'
	@$(PY) -m ruff format --quiet --diff .

types: $(READY)
	@echo 'check: mypy --strict'
	@$(PY) -m mypy --no-error-summary

imports: $(READY)
	@echo 'check: import contracts (.importlinter)'
	@.venv/bin/lint-imports --no-logo > .venv/imports.log || { cat .venv/imports.log; exit 1; }

generated: $(READY)
	@echo 'check: generated code is current (remedy: make proto, make crds)'
	@tools/proto --check
	@$(PY) -m headwater_operator.crds charts/headwater/files/crds --check

locked: $(READY)
	@echo 'check: requirements.lock is current'
	@tools/lock --check

fmt: $(READY) ## format the code and apply ruff's safe fixes
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .

bench: $(READY) ## the engine against bare numpy, pandas, polars and a Python loop; BENCH=tree: the tree over gRPC; BENCH=root: both roots; BENCH=csa: plans (ARGS=--quick)
	@$(PY) benchmarks/$(BENCH).py $(ARGS)

faults: $(READY) ## crashes, partitions, full disks on real processes; writes the table of docs/reliability.md (as root)
	@tools/network-tools
	@$(PY) -m tests.faults $(ARGS)

soak: $(READY) ## a tree under load with a fault every 30 s for as long as asked: make soak HOURS=8 (as root)
	@tools/network-tools
	@$(PY) -m tests.faults.soak --hours $(HOURS) $(ARGS)

images: $(READY) ## the images headwater/node, headwater/root, headwater/operator and headwater/source, with their sizes (also without Docker or a registry)
	@tools/images $(ARGS)

e2e: $(READY) ## the scenarios that CI runs on a real cluster: one of kind, made and removed at need, or that of E2E_KUBECONFIG (ARGS: what they select of all)
	@tools/e2e $(ARGS)

# One after the other: both need all cores.
e2e-all: $(READY) ## everything that CI leaves out too: test-extended, then every scenario on a cluster
	@$(MAKE) --no-print-directory test-extended ARGS=
	@tools/e2e --all

cluster: $(READY) ## a kind cluster (control plane, edge, fog, cloud) and its kubeconfig, also without Docker or a registry (e2e/kind)
	@$(PY) -m airgap_kind up $(ARGS)

cluster-images: $(READY) ## build the images and load them onto that cluster (again after a change; then restart what runs them)
	@tools/load-images $(ARGS)

cluster-down: $(READY) ## remove the cluster; the engine and what was built stay
	@$(PY) -m airgap_kind down $(ARGS)

properties: $(READY) ## property tests for as long as asked: make properties MINUTES=60
	@$(PY) -m tests.properties --minutes $(MINUTES) $(ARGS)

fuzz: $(READY) ## the corpus of hostile input, then the fuzzer for as long as asked: make fuzz SECONDS=600
	@$(PY) -m fuzz.run --seconds $(SECONDS) $(ARGS)

proto: $(READY) ## the code of the messages anew from protos/**/*.proto
	@tools/proto

crds: $(READY) ## the definitions in the chart anew from operator/headwater_operator/crds
	@$(PY) -m headwater_operator.crds charts/headwater/files/crds

lock: ## requirements.lock anew from pyproject.toml, keeping pins (ARGS=--upgrade moves them)
	@tools/lock $(ARGS)

clean: ## remove the virtual environment, caches and build output
	@rm -rf .venv dist build fuzz/findings .hypothesis .pytest_cache .ruff_cache .mypy_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(CLASSES): $(READY)
	@echo "set-up: an archive of Spark's classes, once; it takes about a minute" >&2
	@$(PY) -m headwater_spark.classes > /dev/null || echo 'set-up: it was not made; Spark starts more slowly' >&2
	@touch $@

$(READY): requirements.lock pyproject.toml tools/setup-venv
	@tools/setup-venv
