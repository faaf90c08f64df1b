# Everything happens in .venv, made from requirements.lock. PYTHON chooses the interpreter it is made with.
PYTHON ?= python3
PRESET ?= quick
WORKERS ?= 2
TESTS ?= quick

VENV := .venv
STAMP := $(VENV)/.installed
PY := $(VENV)/bin/python
LATEST = .venv-latest-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# Into the environment, whatever a person's variables and settings of pip say (user = true).
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT
PIP_INSTALL := -m pip install --no-user --quiet --disable-pip-version-check
PUBLIC := $(addprefix icl_lab.,prompts models fast constructions theory solvers compare identify training claims pages \
  lab lab.runs lab.own_record lab.own_training)

.DEFAULT_GOAL := help
.PHONY: help install reproduce page docs gallery audit benchmark test test-latest lint lock clean force

# A line "target: ... ## text" is an entry of the menu, a line "##@ text" a heading.
help:
	@echo "icl_lab: four papers on in-context learning, every claim a number with a verdict"
	@awk '/^##@ / { print "\n" substr($$0, 5) } /^[a-z-]+:.*## / { text = $$0; sub(/.*## /, "", text); sub(/:.*/, ""); \
	  printf "  make %-12s %s\n", $$0, text }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Without make: .venv/bin/python -m icl_lab lists the experiments; each has --help."

##@ Start here
page: $(STAMP) ## what was found, in one file to read: runs/page.html; seconds, no training
	@$(PY) -m experiments.page

reproduce: $(STAMP) ## run every experiment at PRESET=quick (minutes): verdicts here, figures and a page under runs/
	@$(PY) -m experiments.reproduce --preset=$(PRESET)

install: $(STAMP) ## only create .venv from the lock file (the other targets do it when needed)

docs: $(STAMP) ## the reference of every public name, a folder that opens from disk: runs/reference/index.html
	@$(PY) -W ignore -m pdoc --docformat google --no-show-source -o runs/reference $(PUBLIC)
	@echo "runs/reference/index.html"

##@ Records and speed
gallery: $(STAMP) ## collect finished lab and paper runs into figures/ and their verdicts into README.md
	@$(PY) -m experiments.gallery --runs=runs

audit: $(STAMP) ## check ledger, records and texts against each other, with numpy and scipy alone
	@$(PY) experiments/tools/audit.py

benchmark: $(STAMP) ## time the training steps
	@$(PY) -m experiments.benchmark

##@ Work on the code
test: $(STAMP) ## run the tests but the slow ones (minutes), warnings are errors; make test TESTS=all runs all
	@$(PY) -m pytest -n $(WORKERS) --dist worksteal $(if $(filter all,$(TESTS)),,-m "not slow")

test-latest: ## run the tests with the newest releases instead of the lock: make test-latest PYTHON=python3.12
	@$(call fresh_venv,$(LATEST))
	@$(LATEST)/bin/python $(PIP_INSTALL) --upgrade --upgrade-strategy eager -e '.[test]'
	@pwd -P > $(LATEST)/.installed
	@$(LATEST)/bin/python -c 'import platform, jax, flax; print("Python", platform.python_version(), "JAX", jax.__version__, "Flax", flax.__version__)'
	@$(LATEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal

lint: $(STAMP) ## ruff (rules and format), mypy and, where it is installed, tsc on the scripts of the page
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@if command -v tsc >/dev/null; then tsc -p jsconfig.json && tsc -p jsconfig.models.json; \
	  else echo "tsc (TypeScript) is not installed: the types of the scripts are not checked"; fi

lock: ## bring requirements.lock in line with pyproject.toml (needs uv; delete the file first to get newer releases)
	@command -v uv >/dev/null || { echo "make lock needs uv on PATH" >&2; exit 1; }
	uv pip compile pyproject.toml --extra test --universal --python-version 3.11 --fork-strategy fewest \
	  --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links --quiet -o requirements.lock

clean: ## remove environments and caches (never runs/)
	rm -rf .venv .venv-latest-* build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .xla_cache
	find icl_lab experiments tests -name __pycache__ -prune -exec rm -rf {} +

# $(call here,FOLDER): whether an environment was finished in this place. One that was moved or copied with its checkout
# would import, and install into, the place that it came from.
here = test "$$(cat $(1)/.installed 2>/dev/null)" = "$$(pwd -P)"

# The stamp is removed before an installation and written after it: where there is none, the environment was never
# finished and is made anew; where it is only older than the lock, packages are brought up to date in place.
$(STAMP): requirements.lock pyproject.toml $(if $(wildcard $(PY)),,force) $(shell $(call here,$(VENV)) || echo force)
	@$(call fresh_venv,$(VENV))
	@echo "installing the locked packages into $(VENV) (once; a minute or two)"
	@$(PY) $(PIP_INSTALL) --require-hashes -r requirements.lock
	@$(PY) $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@pwd -P > $@

# $(call fresh_venv,FOLDER): makes a virtual environment unless a finished one is there, and takes its stamp away.
define fresh_venv
set -e; if ! { $(call here,$(1)) && $(1)/bin/python -c ''; } 2>/dev/null; then \
  command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on PATH; name a Python: make PYTHON=/path/to/python3" >&2; exit 1; }; \
  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
    echo "icl_lab needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) --version 2>&1); try: make PYTHON=python3.12" >&2; exit 1; }; \
  $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
    echo "$(PYTHON) cannot make environments (no venv or ensurepip); on Debian and Ubuntu install python3-venv" >&2; exit 1; }; \
  $(PYTHON) -m venv --clear $(1); \
fi; rm -f $(1)/.installed
endef
