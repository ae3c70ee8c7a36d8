# Everything a person or CI runs. `make` alone lists the targets.
#
# Needs Python 3.11 or newer, git and make; everything else is installed into .venv from the Python registry (Node, too, for
# the dashboard) and into dashboard/node_modules from npm's.

.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# The dashboard's packages. Its tools run by the node of a Python wheel, so that no other is needed.
PACKAGES := dashboard/node_modules/digest
DASHBOARD = cd dashboard && $$($(CURDIR)/$(BIN)/python build.py --node)
# Four workers on two cores: they wait half their time, for leases, processes and browsers. Whole files go to one worker, because
# what a file shares (a running service, a pool of ranks) is costly to start; tests/conftest.py says in which order.
PYTEST_WORKERS ?= 4

.PHONY: help
help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (the first time takes a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@LOCKSTEP_PAGES=skip $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

$(PACKAGES): dashboard/package.json dashboard/package-lock.json $(INSTALLED)
	@echo "installing the dashboard's packages …"
	@$(BIN)/python dashboard/build.py --packages

.PHONY: install
install: $(INSTALLED)  ## Set up .venv

.PHONY: pages
pages: $(INSTALLED)  ## Build the dashboard's pages, if its sources have changed
	@$(BIN)/python dashboard/build.py

# The service runs without pages, too: where they cannot be built, one line says so.
.PHONY: pages-if-possible
pages-if-possible: $(INSTALLED)
	@$(BIN)/python dashboard/build.py --if-possible

.PHONY: demo
demo: pages-if-possible  ## Start the service, train a small GPT on two ranks over HTTP, show the result, stop
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

.PHONY: up
up: pages-if-possible  ## Start the service on this machine and stay (Ctrl-C stops it)
	@$(BIN)/lockstep up

.PHONY: dev
dev: $(PACKAGES)  ## Serve the dashboard's pages from their sources, over the service of `make up` (or LOCKSTEP_URL)
	@$(DASHBOARD) node_modules/vite/bin/vite.js

.PHONY: test
# Hundreds of processes are started: where Python is told to keep no bytecode, as it is in many containers, each would compile
# our modules anew.
test: export PYTHONDONTWRITEBYTECODE =
test: $(PACKAGES) pages browser  ## Run all tests: real broker, both databases, real processes, a browser
	@said=$$(mktemp); code=0; \
	  ($(DASHBOARD) node_modules/vitest/vitest.mjs run) >$$said 2>&1 & beside=$$!; \
	  trap 'kill $$beside; wait $$beside; exit 130' INT TERM; \
	  $(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadfile --no-loadscope-reorder || code=$$?; \
	  wait $$beside || code=$$?; cat $$said; rm $$said; exit $$code

.PHONY: test-fast
test-fast: $(INSTALLED)  ## Run the tests that start no service, rank or browser, for the daily loop
	@$(BIN)/pytest --fast -n $(PYTEST_WORKERS) --dist loadfile

.PHONY: test-under-load
test-under-load: $(INSTALLED)  ## Run all tests five times beside two busy loops
	@yes >/dev/null & one=$$!; yes >/dev/null & two=$$!; trap "kill $$one $$two" EXIT; code=0; \
	  for run in 1 2 3 4 5; do $(MAKE) --no-print-directory test || code=1; done; exit $$code

# Debian's chromium, for tests/dashboard. Where it is missing and cannot be had, these tests are skipped and say so.
.PHONY: browser
browser:
	@if [ -z "$$LOCKSTEP_CHROMIUM" ] && ! command -v chromium >/dev/null && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	    && [ ! -e $(VENV)/.chromium ]; then \
	  echo "installing Debian's chromium for the tests of the dashboard (tried once) …"; touch $(VENV)/.chromium; \
	  { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null 2>&1 || echo "… it could not be installed"; \
	fi

.PHONY: pictures
pictures: $(PACKAGES) pages browser  ## Write the pictures of docs/dashboard after a change of the pages; look at each
	@LOCKSTEP_WRITE_PICTURES=1 $(BIN)/pytest -q -n 2 -m drill tests/dashboard/test_pictures.py

# Drills that only count have one core, and those that measure how long a recovery takes have the others.
COUNTED := $(addprefix tests/faults/test_,api.py database_faults.py ends_and_notifications.py model.py sqlite_kill.py)

.PHONY: drill
drill: $(INSTALLED)  ## Inject every fault many times, print what happened, and note it in docs/ (most of an hour; needs a quiet machine)
	@export LOCKSTEP_RECORD_DRILLS=docs/drills.json; code=0; said=$$(mktemp); start=$$SECONDS; \
	  nice -n 19 $(BIN)/pytest -m row -n 1 $(COUNTED) >$$said 2>&1 & counting=$$!; \
	  trap 'kill $$counting; wait $$counting; exit 130' INT TERM; \
	  $(BIN)/pytest -m row $(addprefix --ignore=,$(COUNTED)) || code=$$?; \
	  wait $$counting || code=$$?; cat $$said; rm $$said; \
	  echo "all drills took $$(((SECONDS - start) / 60)) min"; \
	  $(BIN)/python docs/generate.py && exit $$code

.PHONY: soak
soak: $(INSTALLED)  ## Twenty minutes of load under random faults (LOCKSTEP_SOAK_SECONDS=120 is shorter)
	@$(BIN)/pytest -m soak -s tests/faults/test_soak.py

.PHONY: test-long
test-long: $(INSTALLED)  ## Run the long forms of the other tests (half an hour)
	@TEST_EXAMPLES=2000 $(BIN)/pytest tests/domain/test_scheduling_properties.py
	@$(BIN)/pytest -m "drill and not row"

.PHONY: check
check: $(PACKAGES)  ## Format, lint, types, import rules, names of packages, generated files fresh, figures of the prose
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check
	$(BIN)/python docs/language.py --check
	$(BIN)/python docs/names.py
	$(BIN)/python docs/parameters.py
	$(BIN)/python docs/kinds.py
	$(DASHBOARD) node_modules/@biomejs/biome/bin/biome check .
	$(DASHBOARD) node_modules/typescript/bin/tsc --noEmit
	$(BIN)/python dashboard/client.py --check

.PHONY: format
format: $(PACKAGES)  ## Format the code and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(DASHBOARD) node_modules/@biomejs/biome/bin/biome check --write .

.PHONY: client
client: $(PACKAGES)  ## Write the dashboard's API client anew, from what the API says of itself
	$(BIN)/python dashboard/client.py

.PHONY: docs
docs: $(INSTALLED)  ## Write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

.PHONY: contract
contract: $(INSTALLED)  ## Run the engine's tests, note what they measure, and write docs/contract.md
	@folder=$$(mktemp -d) && LOCKSTEP_RECORD_CONTRACT=$$folder $(BIN)/pytest tests/engine && \
	  $(BIN)/python -c 'import sys; from pathlib import Path; from tests.engine import contract; contract.gather(Path(sys.argv[1]))' $$folder && \
	  $(BIN)/python docs/generate.py

.PHONY: mutants
mutants: $(INSTALLED)  ## Break rules one at a time; their tests must fail (5 minutes)
	@$(BIN)/python -m tests.mutants $(ARGS)

.PHONY: test-gpu
test-gpu: $(INSTALLED)  ## Run the tests that need a CUDA device
	@$(BIN)/pytest -m gpu -rs tests

.PHONY: docker-test
docker-test:  ## Build the images and run the documented commands of Compose (needs a Docker daemon; says so where none is)
	@bash docker/test.sh

.PHONY: bench-service
bench-service: $(INSTALLED)  ## Measure the service beside MLflow, Ray Jobs and torchrun (about an hour; needs a quiet machine)
	@$(BIN)/python -m benchmarks.service $(ARGS)

.PHONY: clean
clean:  ## Remove the environment, built pages and caches
	rm -rf $(VENV) dashboard/node_modules dashboard/openapi.json api/pages build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
