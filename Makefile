# `make test` needs Python 3.11 or newer and a package index, and sets up everything else.
# pip is used as it is configured: mirrors, proxies and certificates are the environment's business.

PYTHON ?= python3
VENV ?= .venv
LOCK := requirements/dev.txt
PYTHONS := 3.11 3.12 3.13 3.14

# Four workers find tests that disturb each other, and keep two cores at work: more than a third of a test's
# time is spent on waiting, for a lease to end or for a deadline.  `auto` would mean something else on every
# machine.  Each begins with a part of the tests that lie together, so that what a class or a file sets up
# is set up once, and takes from the others when it has none left.  `make pytest PYTEST_ARGS=--pdb` runs in
# one process.
PYTEST_ARGS ?= -n 4 --dist worksteal

# Tests start hundreds of processes, which should not compile what they import each time.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-pythons test-store test-tools services lint ruff mypy pyright pytest docs bench \
    evidence format lock clean

help:  ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22

demo: $(VENV)/.demo  ## Set up what it needs, then lose responses, kill a server, and count the money
	$(BIN)/retrysafe demo

test: lint pytest  ## Set up what is missing, then run every check, and the tests of the library

test-all: export RETRYSAFE_LONG = 1
# Some tests take minutes in full.
test-all: export PYTEST_TIMEOUT = 600
test-all: lint test-pythons test-tools  ## Every check, and every test in full on every supported Python found

# Two checkers that take most of a minute each, and use one core each.
lint: $(INSTALLED)  ## ruff, mypy, pyright
	@$(MAKE) --no-print-directory --jobs 3 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) \
	    ruff mypy pyright

ruff: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(INSTALLED)
	$(BIN)/mypy

pyright: $(INSTALLED)
	$(BIN)/pyright --pythonpath $(BIN)/python

pytest: $(INSTALLED)  ## The tests of the library alone
	$(BIN)/python -m pytest --ignore tests/tools $(PYTEST_ARGS)

services:  ## Install MariaDB and Galera, which no wheel has: as root, by apt-get; no service is started
	@sh tools/services.sh

# By the environment: a password in the address is then neither printed nor in the list of processes.
test-store: export RETRYSAFE_STORE = $(value URL)
test-store: .url-given $(INSTALLED)  ## The store suite on any store: make test-store URL=postgresql://user@host/database
	@$(BIN)/python -m retrysafe.testing.stores $(STORE_ARGS)

.PHONY: .url-given
.url-given:
	@test -n "$$RETRYSAFE_STORE" || { echo "make test-store needs the address of a store, as in" \
	    "make test-store URL=sqlite:///keys.db, URL=postgresql://user@host/database or URL=redis://host:6379/0" >&2; exit 2; }

test-tools: $(INSTALLED)  ## The tests of our own tools: planted bugs, crash harness, fuzzing, evidence, benchmarks
	$(BIN)/python -m pytest tests/tools $(PYTEST_ARGS)

docs: $(INSTALLED) $(VENV)/.docs  ## Build the documentation into build/docs
	$(BIN)/sphinx-build --fail-on-warning --fresh-env --quiet --builder html docs build/docs
	@echo "build/docs/index.html"

# `make bench PYTHON=…` has an environment of its own for that interpreter, named by its version and its path:
# `.venv` may have another one, and two of the same version may differ in how they were built.
ifeq ($(origin PYTHON) $(origin VENV),command line file)
bench:
	@venv=$$($(PYTHON) -c 'import sys, zlib; print(".venv-bench-%d.%d.%d-%08x" \
	    % (sys.version_info[:3] + (zlib.crc32(sys.executable.encode()) & 0xFFFFFFFF,)))') && \
	$(MAKE) --no-print-directory bench VENV=$$venv
else
bench: $(INSTALLED) $(VENV)/.bench  ## What it costs, beside the bare application and others (PYTHON=… takes another)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)
endif

evidence: $(INSTALLED) $(VENV)/.fuzz  ## Run all that looks for broken promises, an hour or two, and make its page
	$(BIN)/python -m tools.evidence $(EVIDENCE_ARGS)

format: $(INSTALLED)  ## Format, and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A name on PATH may be a shim for a version that is not active, so each candidate is asked to run.
test-pythons:  ## The tests on every supported Python found, each in an environment of its own
	@found=; failed=; \
	for version in $(PYTHONS); do \
	    python=; \
	    for candidate in "python$$version" "$$HOME"/.pyenv/versions/$$version*/bin/python; do \
	        if "$$candidate" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$$version')" \
	            >/dev/null 2>&1; then python=$$candidate; break; fi; \
	    done; \
	    if [ -z "$$python" ]; then echo "== Python $$version: not found, skipped"; continue; fi; \
	    echo "== Python $$version: $$("$$python" --version)"; \
	    found="$$found $$version"; \
	    $(MAKE) --no-print-directory pytest PYTHON="$$python" VENV=".venv-$$version" \
	        || failed="$$failed $$version"; \
	done; \
	if [ -z "$$found" ]; then echo "== none of these Pythons was found: $(PYTHONS)"; exit 1; fi; \
	if [ -n "$$failed" ]; then echo "== failed on$$failed"; exit 1; fi; \
	echo "== passed on$$found"

# No index, no local path and no header of the machine that made it: the lock is names and hashes.
# `--universal` keeps it valid for every platform and every Python from 3.11 on.
lock: $(INSTALLED)  ## Write the lock anew from pyproject.toml (UPGRADE=--upgrade takes new versions)
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	    --group dev --output-file $(LOCK) $(UPGRADE) pyproject.toml
	for group in demo docs bench fuzz; do \
	    package=; if [ $$group = demo ]; then package="--extra cli pyproject.toml"; fi; \
	    $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	        --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
	        --constraint $(LOCK) --group $$group --output-file requirements/$$group.txt $(UPGRADE) \
	        $$package || exit; \
	done

clean:  ## Remove the environments, the caches and the builds
	rm -rf .venv .venv-* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

# An environment is set up in two stages.  The first has what `make demo` runs: the package, its command line and
# the build backend.  Only what a lock names is installed, the backend included: hence no build isolation, and
# no dependencies besides.
$(VENV)/.demo: requirements/demo.txt pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { \
	    echo "retrysafe needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1):" \
	        "name another, as in  make $(firstword $(MAKECMDGOALS) test) PYTHON=python3.12"; exit 1; }
	@echo "Setting up $(VENV), once: some ten seconds"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $<
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The second stage has what checks and tests need.
$(INSTALLED): $(LOCK) $(VENV)/.demo
	@echo "Installing the tools of development into $(VENV), once: about a minute"
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $(LOCK)
	@touch $@

# Tools that only one command needs are installed when it is first given.
$(VENV)/.docs $(VENV)/.bench $(VENV)/.fuzz: $(VENV)/.%: requirements/%.txt $(INSTALLED)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $<
	@touch $@
