# `make` lists the targets. All targets use a virtual environment in this folder, which is created on first use.

# The newest version that starts: a version manager may have names of versions that are not installed.
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

# One stamp for each set of extras; torch is installed first, so that the version of constraints.txt is used.
$(VENV)/installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt torch
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$*]"
	@touch $@

install: $(VENV)/installed-dev  ## install the package with everything for development

demo: $(VENV)/installed-demo  ## build the page runs/demo/index.html: effects of geometry, captions of photographs, search
	$(BIN)/hf-ngsan demo

docs: $(VENV)/installed-docs  ## build the site of docs/ with the package's reference, in build/site
	$(BIN)/sphinx-build --quiet --fail-on-warning --fresh-env docs build/site
	@echo "Open build/site/index.html."

# Tests of a file run in one process, because they share expensive fixtures.
TEST_PROCESSES ?= 2

# With several threads, small tensors are not faster, and much slower on a busy machine.
test slow nightly newest oldest: export OMP_NUM_THREADS ?= 1

test: $(VENV)/installed-test  ## run the fast tests, which take minutes
	$(BIN)/python -m tests.transformers_suite
	$(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --dist loadfile

slow: $(VENV)/installed-test  ## run the slow tests: processes, kills, clusters, servers, browsers, the demo, README
	$(BIN)/python -m tests.transformers_suite
	$(BIN)/python -m pytest -q -m "slow and not nightly" --numprocesses $(TEST_PROCESSES) --dist loadfile

nightly: drift oldest processors  ## run the tests that take hours: malformed input, kills at every operation, other versions
	$(BIN)/python -m pytest -q -m nightly --numprocesses $(TEST_PROCESSES) --dist loadfile

# The last digits of results depend on the processor and the number of threads; no test depends on them.
processors: $(VENV)/installed-test  ## run the fast tests with other instruction sets, on one thread and on two
	for set in ATEN_CPU_CAPABILITY=default ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX2; do for threads in 1 2; do \
	  echo "$$set, $$threads threads"; \
	  env $$set OMP_NUM_THREADS=$$threads $(BIN)/python -m pytest -q --numprocesses $(TEST_PROCESSES) --dist loadfile || exit 1; \
	done; done

# Like an installation by users: a wheel in a separate environment in build/, without constraints.
newest: $(VENV)/installed-test  ## test a wheel with the newest releases that pyproject.toml allows
	$(BIN)/python -m tests.fresh_environment newest --processes $(TEST_PROCESSES)

oldest: $(VENV)/installed-test  ## the same with the oldest releases
	$(BIN)/python -m tests.fresh_environment oldest --processes $(TEST_PROCESSES)

# Each version of transformers is installed into a separate folder, before the shared libraries in the path.
DRIFT_VERSIONS ?= 5.24.0

drift: $(VENV)/installed-test  ## compare frozen checkpoints of every model type with several versions of transformers
	for version in $(DRIFT_VERSIONS); do \
	  test -d build/drift/$$version || $(BIN)/pip install --quiet --no-deps --target build/drift/$$version transformers==$$version || exit 1; \
	  PYTHONPATH=$(CURDIR)/build/drift/$$version $(BIN)/python -m tests.drift || exit 1; \
	done

lint: $(VENV)/installed-dev  ## check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## fix style and formatting
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

benchmarks: $(VENV)/installed-test  ## measure speed and memory; prints the required and the measured numbers
	for script in import_time ngsan_step metrics; do $(BIN)/python benchmarks/$$script.py || exit 1; done

clean:  ## remove the virtual environment and all generated files except training runs
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
