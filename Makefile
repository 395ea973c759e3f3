# Needs Python 3.11 or newer, make, and a package index that pip can reach.
#   make PYTHON=python3.13 test      another interpreter (for a new .venv)
#   make test JOBS=4 ARGS='-k lease' more test processes, or fewer tests

PYTHON ?= python3
JOBS   ?= 4
ARGS   ?=
BASE   ?= HEAD

VENV := .venv
BIN  := $(VENV)/bin
CORE := $(VENV)/.installed-core
DEV  := $(VENV)/.installed-dev
# -qq: errors only. The line that says what is being installed is ours.
PIP  := $(BIN)/python -m pip --disable-pip-version-check -qq

# What mypy reads, of what is there.
TYPED := $(wildcard src tests bench docs/*.py)

# The tests start hundreds of short processes: what one has compiled the next ones read, whatever the shell says.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help demo test pythons quick lint bench bench-stores bench-guard faults docs clean
.DELETE_ON_ERROR:

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(CORE) ## see it work, in under a minute, without any server
	@$(BIN)/dibs demo

# The checks of lint run beside the tests, most of which wait for a server: what they complain about is shown at once.
test: $(DEV) ## every check and every test
	@{ $(MAKE) --no-print-directory lint >$(VENV)/lint.txt 2>&1 || { cat $(VENV)/lint.txt >&2; exit 1; }; } & linting=$$!; \
	trap 'kill $$linting 2>/dev/null' INT TERM; \
	echo "pytest, with ruff, mypy and lint-imports beside it"; \
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal $(ARGS); tested=$$?; \
	wait $$linting || { echo "lint found something: see above, or run make lint" >&2; exit 1; }; \
	exit $$tested

# By its name or, where pyenv has it and keeps it to itself, by its path.
pythons: ## most of the tests, on every other Python that is found here
	@for name in python3.11 python3.12 python3.13 python3.14; do \
	  found=; \
	  for python in $$name $${PYENV_ROOT:-$$HOME/.pyenv}/versions/$${name#python}.*/bin/$$name; do \
	    if $$python -c '' 2>/dev/null; then found=$$python; break; fi; \
	  done; \
	  if [ -z "$$found" ]; then echo "$$name: not found here"; continue; fi; \
	  echo "$$found"; $(MAKE) --no-print-directory PYTHON=$$found VENV=.venv-$$name quick || exit 1; \
	done

quick: $(DEV)
	@$(BIN)/python -m pytest -q -n $(JOBS) --dibs-lab memory --dibs-lab sqlite \
	  tests/unit tests/process tests/docs tests/contract src/dibs/testing/contract $(ARGS)

lint: $(DEV) ## ruff, mypy and the import direction
	@echo "ruff check"
	@$(BIN)/ruff check --quiet .
	@echo "ruff format --check"
	@$(BIN)/ruff format --check --quiet . || \
	  { echo "not formatted as ruff would: run $(BIN)/ruff format ." >&2; exit 1; }
	@echo "mypy --strict $(TYPED)"
	@$(BIN)/mypy --no-error-summary $(TYPED)
	@echo "lint-imports"
	@out=$$($(BIN)/lint-imports 2>&1) || { printf '%s\n' "$$out" >&2; exit 1; }

bench: $(DEV) ## measure dibs and its peers; takes hours, with ARGS=--quick under five minutes
	@$(BIN)/python bench/compare.py $(ARGS)

bench-stores: $(DEV) ## measure the stores against their limits and rivals
	@$(BIN)/python bench/stores.py $(ARGS)

bench-guard: $(DEV) ## fail if this tree is slower than BASE=<commit>
	@$(BIN)/python bench/guard.py --base $(BASE) $(ARGS)

faults: $(DEV) ## the crash and race tests at full size; takes minutes
	@DIBS_FAULTS=full $(BIN)/python -m pytest -n 2 --timeout 1800 -k "faults or race" \
	  $(wildcard tests/faults tests/contract) $(ARGS)

docs: $(DEV) ## build the documentation
	@$(BIN)/python docs/build.py $(ARGS)

clean: ## remove .venv, caches and everything built
	@rm -rf $(VENV) .venv-* .bench build dist site .pytest_cache .mypy_cache .ruff_cache \
	  .import_linter_cache .hypothesis
	@find src tests bench docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "no $(PYTHON) here; try make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "dibs needs Python 3.11 or newer; $(PYTHON) is" \
	    "$$($(PYTHON) -V 2>&1). Try make PYTHON=python3.13" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) -V)"
	@$(PYTHON) -m venv --clear $(VENV)

# pyproject.toml is newer than the stamp: install again. | : the age of python itself is no reason.
$(CORE): pyproject.toml | $(BIN)/python
	@echo "installing dibs into $(VENV)"
	@$(PIP) install -e .
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "installing dibs and what its tests need into $(VENV)"
	@$(PIP) install --no-compile -e '.[dev]' # what is used is compiled when it is
	@touch $(CORE) $@
