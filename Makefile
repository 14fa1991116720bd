# `make` lists the targets. Everything happens in a virtual environment of this folder, made on first use.

# The newest that runs: a version manager may have a name for one that it does not start.
PYTHON ?= $(shell for name in python3.13 python3.12 python3.11; do $$name --version >/dev/null 2>&1 && echo $$name && exit; done; echo python3.11)
VENV ?= .venv
BIN := $(VENV)/bin
export HF_HUB_OFFLINE = 1

.DEFAULT_GOAL := help
.PHONY: help install demo docs test slow nightly processors newest oldest drift lint format benchmarks clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# One stamp for each set of extras; torch comes first, so that the version of constraints.txt is the one that counts.
$(VENV)/installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$*]"
	@touch $@

install: $(VENV)/installed-dev  ## install the package with all that its development needs

demo: $(VENV)/installed-demo  ## show what geometry changes in captions, caption and find photographs; a page, runs/demo/index.html
	$(BIN)/hf-ngsan demo

docs: $(VENV)/installed-docs  ## build the site of docs/ and the package's reference; into build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --fresh-env docs build/site
	@echo "Open build/site/index.html."

# Tests of a file stay together, as they share what is costly to make.
TEST_PROCESSES ?= 2

# Small tensors are no faster on several threads, and far slower on a busy machine.
test slow nightly newest oldest: export OMP_NUM_THREADS ?= 1

test: $(VENV)/installed-test  ## run the fast tests: minutes, in one process each
	$(BIN)/python -m tests.transformers_suite
	$(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --dist loadfile

slow: $(VENV)/installed-test  ## run the slow tests: processes, kills, clusters, servers, browsers, the demo, README
	$(BIN)/python -m tests.transformers_suite
	$(BIN)/python -m pytest -q -m "slow and not nightly" --numprocesses $(TEST_PROCESSES) --dist loadfile

nightly: drift oldest processors  ## run what takes hours: strange input, kills at every operation, other versions
	$(BIN)/python -m pytest -q -m nightly --numprocesses $(TEST_PROCESSES) --dist loadfile

# Results differ in the last digits between processors and numbers of threads; no test depends on them.
processors: $(VENV)/installed-test  ## run the fast tests with other instruction sets, on one thread and on two
	for set in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2; do for threads in 1 2; do \
	  echo "$$set, $$threads threads"; \
	  env $$set OMP_NUM_THREADS=$$threads $(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --dist loadfile || exit 1; \
	done; done

# As users install it, without constraints; a wheel in an environment of its own, in build/.
newest: $(VENV)/installed-test  ## the newest releases that pyproject.toml allows: a first use from a wheel, and the tests
	$(BIN)/python -m tests.fresh_environment newest --processes $(TEST_PROCESSES)

oldest: $(VENV)/installed-test  ## the same with the oldest releases
	$(BIN)/python -m tests.fresh_environment oldest --processes $(TEST_PROCESSES)

# Each version of transformers goes into a folder of its own, in front of the libraries that all share.
DRIFT_VERSIONS ?= 5.24.0

drift: $(VENV)/installed-test  ## compare frozen checkpoints of every model type under several versions of transformers
	for version in $(DRIFT_VERSIONS); do \
	  test -d build/drift/$$version || $(BIN)/pip install --quiet --no-deps --target build/drift/$$version transformers==$$version || exit 1; \
	  PYTHONPATH=$(CURDIR)/build/drift/$$version $(BIN)/python -m tests.drift || exit 1; \
	done

lint: $(VENV)/installed-dev  ## check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## repair style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

benchmarks: $(VENV)/installed-test  ## measure speed and memory; prints the required numbers beside the measured ones
	for script in import_time ngsan_step metrics; do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean:  ## remove the virtual environment and everything generated; trained runs stay
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
