.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo check quick lint test tools soak bench docs dist version clean

PYTHON ?= $(shell scripts/python)
VENV := .venv
BIN := $(VENV)/bin
AXE := .cache/axe-core/node_modules/axe-core/axe.min.js
# Programs start sooner and tests are collected sooner when Python keeps what it compiled.
unexport PYTHONDONTWRITEBYTECODE
# -qq: the build of PySpark warns for pages.
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
# How long each long run of `make soak` lasts.
MINUTES ?= 10
# The names of the benchmarks that `make bench` runs, by default all, and the runs of each.
ONLY ?=
RUNS ?= 1

##@ Use
demo: $(VENV)/.runtime ## start an agent with a small producer; prints commands to paste
	@$(BIN)/python -m oplogd.demo

##@ Before a commit
check: $(VENV)/.dev ## lint, types and quick unit tests, in half a minute; needs Python only
	@$(MAKE) --no-print-directory --jobs=2 --output-sync lint quick

quick: $(VENV)/.dev ## run the quick unit tests
	@OPLOG_TEST_EXAMPLES=10 $(BIN)/python -m pytest -m "unit and not thorough" -n 2 --dist loadscope -q

lint: $(VENV)/.dev ## check style, formatting, types and imports between folders
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo

test: tools $(VENV)/.dev $(VENV)/.release .cache/mongo-servers .cache/opensearch-server $(AXE) ## run all tests; on Debian it installs missing programs
	@$(BIN)/python -m pytest -n 5 --dist loadscope --no-loadscope-reorder

##@ Longer runs
soak: tools $(VENV)/.dev .cache/mongo-servers ## repeat hard tests, MINUTES=10 for each subject
	@OPLOG_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m pytest tests/soak -s

bench: $(VENV)/.dev ## run benchmarks and write their page: make bench ONLY="http udp" RUNS=3
	@$(BIN)/python -m tests.bench.report --runs $(RUNS) $(ONLY)

##@ Build
docs: $(VENV)/.release ## build the documentation as a site in build/site; a broken link is an error
	@$(BIN)/python -m scripts.docs

dist: $(VENV)/.release ## build all packages in dist/, check them, install them and try them
	@$(BIN)/python -m scripts.dist

version: ## set one version in all packages: make version VERSION=1.2.3
	@$(PYTHON) -m scripts.version $(VERSION)

##@ Other
clean: ## remove everything that make created, .venv included; a store stays
	rm -rf $(VENV) .cache build dist *.egg-info clients/python/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

help: ## print this list
	@awk -F ':.*## ' '/^##@ / {printf "\n%s\n", substr($$0, 5)} \
		/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The programs that tests start, from Debian packages.
tools:
	@tests/setup

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

# The groups of pyproject.toml need it; the pip of Debian 12 is older.
$(VENV)/.pip: | $(VENV)/.created
	$(PIP) 'pip>=25.1'
	@touch $@

$(VENV)/.dev: pyproject.toml clients/python/pyproject.toml constraints.txt | $(VENV)/.pip
	$(PIP) --group dev -e '.[avro,jwt,mongo,pipe,relay,sync]' -e clients/python
	@touch $@ $(VENV)/.runtime

# The programs that build the packages and the site.
$(VENV)/.release: pyproject.toml constraints.txt | $(VENV)/.pip
	$(PIP) --group release -e .
	@touch $@

# The two MongoDB stand-ins of the tests; needs Go (or a wheel of it), Java and Maven.
.cache/mongo-servers: $(wildcard tests/kits/servers/ferretdb/* tests/kits/servers/javaserver/*) | tools $(VENV)/.dev
	@PYTHONPATH=. $(BIN)/python -m tests.kits.servers.mongo
	@touch $@

# OpenSearch for the tests; needs Java and Maven. It downloads 53 MB.
.cache/opensearch-server: $(wildcard tests/kits/servers/opensearchserver/*) | tools $(VENV)/.dev
	@PYTHONPATH=. $(BIN)/python -m tests.kits.servers.opensearch
	@touch $@

# Checks the dashboard for accessibility; needs npm. The package sets old file times, hence touch.
$(AXE): Makefile | tools
	@npm install --prefix .cache/axe-core --no-save --no-package-lock --ignore-scripts --no-audit --no-fund --silent \
		axe-core@4.14.1
	@touch $@
