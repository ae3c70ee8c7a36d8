# Everything a person or CI runs. `make` alone lists the targets.
#
# Needs Python 3.11 or newer, git and make; everything else is installed into .venv from the Python registry.

.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# Two workers: engine tests start up to four processes each, and a laptop has at least two cores. Whole files go to one
# worker, because what a file shares (a running service, a pool of ranks) is costly to start.
PYTEST_WORKERS ?= 2

.PHONY: help
help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(INSTALLED): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (the first time takes a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

.PHONY: install
install: $(INSTALLED)  ## Set up .venv

.PHONY: demo
demo: $(INSTALLED)  ## Start the service, train a small GPT on two ranks over HTTP, show the result, stop
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

.PHONY: up
up: $(INSTALLED)  ## Start the service on this machine and stay (Ctrl-C stops it)
	@$(BIN)/lockstep up

.PHONY: test
test: $(INSTALLED)  ## Run all tests: real broker, both databases, real processes
	@$(BIN)/pytest -n $(PYTEST_WORKERS) --dist loadfile

# Drills that only count have one core, and those that measure how long a recovery takes have the others.
COUNTED := $(addprefix tests/faults/test_,api.py database_faults.py ends_and_bells.py model.py planted.py sqlite_kill.py)

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
	@$(BIN)/pytest -m "drill and not row"

.PHONY: check
check: $(INSTALLED)  ## Format, lint, types, import rules, generated files fresh
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

.PHONY: format
format: $(INSTALLED)  ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: docs
docs: $(INSTALLED)  ## Write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

.PHONY: contract
contract: $(INSTALLED)  ## Run the engine's tests, note what they measure, and write docs/contract.md
	@folder=$$(mktemp -d) && LOCKSTEP_RECORD_CONTRACT=$$folder $(BIN)/pytest tests/engine && \
	  $(BIN)/python -c 'import sys; from pathlib import Path; from tests.engine import contract; contract.gather(Path(sys.argv[1]))' $$folder && \
	  $(BIN)/python docs/generate.py

.PHONY: test-gpu
test-gpu: $(INSTALLED)  ## Run the tests that need a CUDA device
	@$(BIN)/pytest -m gpu -rs tests

.PHONY: bench-service
bench-service: $(INSTALLED)  ## Measure the service beside MLflow, Ray Jobs and torchrun (about an hour; needs a quiet machine)
	@$(BIN)/python -m benchmarks.service $(ARGS)

.PHONY: clean
clean:  ## Remove the environment and caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
