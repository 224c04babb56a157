# make train   set up, train GNNPipe on the built-in graph, print a summary
# make test    set up, then lint, types and the whole test suite (what CI runs)
#
# Variables: PYTHON (3.11 or newer), VENV (the environment's folder), ARGS (overrides for `make train`),
# PYTEST_ARGS (for `make test`).

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
STAMP := $(VENV)/.gnnpar-installed

.PHONY: train test check lint types pytest docs clean

train: $(STAMP)
	$(BIN)/gnnpar train $(ARGS)

test: lint types pytest

check: test

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

pytest: $(STAMP)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

docs: $(STAMP)
	$(BIN)/python scripts/config_docs.py

# torch comes first, so that whatever depends on it finds the pinned build in place.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gnnpar needs Python 3.11 or newer")'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dgl,partition,test,dev]'
	touch $@

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache
