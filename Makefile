# What there is to do here. Everything lives in .venv and .engine beside this file; `make clean` takes both away.
#
#   make demo      set up, start a real vLLM for the CPU from a plan, replay its load, judge, stop it
#   make test      set up, then lint, types and every test, those against a real vLLM included
#   make help      the other targets

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
ENGINE_DIR ?= .engine
PYTEST_ARGS ?=

# The first Python that is new enough and can make virtual environments; `make PYTHON=... TARGET` overrides it.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; \
	done)

# Downloads fail now and then: pip tries each one again, and the whole is tried three times.
define pip_install
for n in 1 2 3; do \
	$(BIN)/python -m pip install --disable-pip-version-check --quiet --retries 5 --timeout 60 $(1) && break; \
	[ $$n -lt 3 ] || exit 1; echo "pip failed, trying again"; sleep $$((n * 5)); \
done
endef

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: $(VENV)/.installed engine ## Plan a made-up model, start a real vLLM from the plan, replay its load, stop
	@$(BIN)/kvadvise demo --engine "$(engine_python)"

.PHONY: setup
setup: $(VENV)/.developing ## The development environment, nothing run

.PHONY: lint
lint: $(VENV)/.developing ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: test
test: lint engine ## Lint, types and every test, a real vLLM included
	KVADVISE_ENGINE="$(engine_python)" $(BIN)/python -m pytest $(PYTEST_ARGS)

.PHONY: unit
unit: $(VENV)/.developing ## The tests that need no vLLM
	$(BIN)/python -m pytest -m 'not engine' $(PYTEST_ARGS)

.PHONY: oracle
oracle: $(VENV)/.developing engine ## Compare KV layouts with every answer of vLLM there is
	KVADVISE_ENGINE="$(engine_python)" $(BIN)/python -m pytest -m 'oracle or engine' $(PYTEST_ARGS)

.PHONY: accuracy
accuracy: $(VENV)/.developing ## Planned against measured starts, per figure
	$(BIN)/python -m tools.accuracy

.PHONY: bench
bench: $(VENV)/.installed ## How long `kvadvise plan --json` takes, and how much memory
	$(BIN)/python benchmarks/plan_start.py

.PHONY: golden
golden: $(VENV)/.developing ## Write the golden files and the texts in README and docs anew
	$(BIN)/python -m pytest -q tests/kvadvise tests/test_docs.py --refresh-golden

.PHONY: clean
clean: ## Take away what the targets above have made
	rm -rf $(VENV) $(ENGINE_DIR) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An engine of one's own is used as it is; else one is installed, once.
engine_python = $(if $(KVADVISE_ENGINE),$(KVADVISE_ENGINE),$(abspath $(ENGINE_DIR))/bin/python)

.PHONY: engine
engine: $(if $(KVADVISE_ENGINE),,$(ENGINE_DIR)/.installed) ## A real vLLM for the CPU, in .engine

$(ENGINE_DIR)/.installed: tests/engine/install.sh
	bash tests/engine/install.sh "$(abspath $(ENGINE_DIR))"
	@touch $@

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "Python 3.11 or newer with its venv module is needed; name it with PYTHON="; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing kvadvise into $(VENV)"
	@$(call pip_install,--editable .)
	@$(BIN)/python -m compileall -q kvadvise advisor launch verify profiles
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	@echo "installing the development tools into $(VENV)"
	@$(BIN)/python -c 'import pathlib, tomllib; print("\n".join(tomllib.loads(pathlib.Path("pyproject.toml").read_text())["dependency-groups"]["dev"]))' > $(VENV)/dev.txt
	@$(call pip_install,--requirement $(VENV)/dev.txt)
	@touch $@
