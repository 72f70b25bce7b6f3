.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test tools lint bench clean

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AXE := .cache/axe-core/node_modules/axe-core/axe.min.js
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt

help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-6s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.runtime ## start the agent with a small producer and say how to follow it
	@$(BIN)/python -m oplogd.demo

test: tools $(VENV)/.dev .cache/mongo-servers $(AXE) ## run the tests; installs what they need beside Python (Debian)
	@$(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder

tools:
	@tests/setup

lint: $(VENV)/.dev ## check style, formatting and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict

bench: $(VENV)/.dev ## run the benchmarks, one after another
	@set -e; for file in $(sort $(wildcard tests/bench/bench_*.py)); do \
		echo "== $$file"; PYTHONPATH=. $(BIN)/python $$file; \
	done

clean: ## remove what was made here, .venv included; a store is kept
	rm -rf $(VENV) .cache build dist *.egg-info clients/python/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# An interrupted or failed creation leaves no stamp, so the next run repairs it.
$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "oplog needs Python 3.11 or newer. Name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
		echo "Could not create $(VENV). On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.runtime: pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml clients/python/pyproject.toml constraints.txt | $(VENV)/.created
	$(PIP) -e '.[dev,sync]' -e clients/python
	@touch $@ $(VENV)/.runtime

# The two MongoDB stand-ins of the tests; needs Go (or a wheel of it), Java and Maven.
.cache/mongo-servers: $(wildcard tests/mongo/ferretdb/* tests/mongo/javaserver/*) | tools $(VENV)/.dev
	@PYTHONPATH=. $(BIN)/python -m tests.mongo.servers
	@touch $@

# What checks the dashboard for accessibility; needs npm. Its files come with a time of long ago.
$(AXE): Makefile | tools
	@npm install --prefix .cache/axe-core --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --silent \
		axe-core@4.14.1
	@touch $@
