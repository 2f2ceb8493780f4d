# `make lab` and `make test` do everything on a fresh machine; both set up .venv first when it is missing or stale.

VENV := .venv
OK   := $(VENV)/ok
PY   := $(VENV)/bin/python

# Knobs: make lab ARGS="--port 8899"; make unit TESTS=tests/graph; make test PYTHON=python3.12
PYTHON ?=
ARGS   ?=
TESTS  ?= tests
# What `make test` leaves to `make test-all`.
SPARE  ?= and not exhaustive
PIP    := $(PY) -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
PYTEST := PYDEVD_DISABLE_FILE_VALIDATION=1 $(PY) -m pytest
# Cells are compared with tests/notebooks/printed.json: the notebooks store no outputs.
NBVAL   = LAB_STATIC_IMAGES=0 $(PYTEST) $(SPREAD) -p tests.notebooks.printed --nbval-lax --nbval-current-env --nbval-cell-timeout=60
# The GPU's tests that `make test` runs on a host in its place, and those that `make test-all` does.
ON_HOST = tests/sampling/neighbors/test_guide_gpu.py tests/minibatch/test_id_maps.py tests/minibatch/test_walk_sampler.py \
          tests/sampling/engine/test_classes.py tests/distributed/sampling/test_csp_gpu.py::test_wide_ids \
          tests/minibatch/test_gpu_arena.py::test_scratch_and_streams_in_one_cycle_of_references \
          tests/minibatch/test_gpu_arena.py::test_a_staged_cache_in_a_cycle_of_references
ALL_ON_HOST = tests/compute tests/device tests/distributed tests/features tests/graph tests/minibatch tests/sampling
REAL   := ogbl-ddi musae-facebook
SPREAD := -n logical --maxprocesses 8 --dist loadfile --no-loadscope-reorder

# Nothing is compiled to bytecode ahead: most modules of the packages are never imported, and what is, Python keeps. It
# has to: hundreds of processes of the tests would each compile the same again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab test test-all lint types unit on-host notebooks browser format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

lab: $(OK) ## JupyterLab on the notebooks
	@$(PY) -m gnnsample_lab.cli lab $(ARGS)

# One after the other, cheapest first: each stage uses all cores by itself. Each prints its time.
test: ## lint, types, unit and parity tests, the GPU's on a host, notebooks, browser test
	@$(call stage,$(OK),set-up)
	@$(call stage,lint)
	@$(call stage,types)
	@$(call stage,unit)
	@$(call stage,on-host)
	@$(call stage,notebooks)
	@$(call stage,browser)

test-all: ## test, and the tests that take too long for every change
	@$(MAKE) --no-print-directory test SPARE= ON_HOST="$(ALL_ON_HOST)"

# A target by its name, or by a second, and the seconds that it took.
stage = began=$$(date +%s); $(MAKE) --no-print-directory $(1) && echo "=== $(or $(2),$(1)): $$(($$(date +%s) - began)) s ==="

lint: $(OK) ## ruff: rules and layout
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(OK) ## mypy
	$(PY) -m mypy

# Only the notebooks need nbval, which takes each process three seconds to import.
unit: $(OK) ## unit and parity tests (with a GPU: its tests too)
	$(PYTEST) $(SPREAD) -p no:nbval -m "not browser $(SPARE)" $(TESTS)

on-host: $(OK) ## tests of the GPU without one: g++ compiles the kernels (tests/host_gpu)
	$(PYTEST) $(SPREAD) -p no:nbval -p tests.host_gpu.plugin -m "gpu and not real_gpu $(SPARE)" $(ON_HOST)

notebooks: $(OK) ## every notebook, top to bottom: on the default graph, on real ones where LAB_DATA_ROOT has them
	$(NBVAL) notebooks
	@for graph in $(REAL); do \
	  if $(PY) -c "import sys, gnnsample_lab as lab; lab.load(sys.argv[1], download=False)" $$graph 2>/dev/null; then \
	    echo "LAB_DATASET=$$graph $(NBVAL) notebooks"; LAB_DATASET=$$graph $(NBVAL) notebooks || exit 1; \
	  else \
	    echo; echo "  ***  THE NOTEBOOKS DID NOT RUN ON $$graph: set LAB_DATA_ROOT to a folder that has it.  ***"; echo; \
	  fi; \
	done

browser: $(OK) ## JupyterLab driven in Chromium
	@if $(PY) -m gnnsample_lab.doctor --chromium >/dev/null; then \
	  echo "$(PYTEST) -p no:nbval -m 'browser $(SPARE)' tests/browser"; $(PYTEST) -p no:nbval -m "browser $(SPARE)" tests/browser; \
	else \
	  echo; echo "  ***  THE BROWSER TEST DID NOT RUN: no Chromium here.  ***"; \
	  echo "  ***  Install chromium (apt-get install chromium) or set LAB_CHROMIUM.  ***"; echo; \
	  test -z "$$CI"; \
	fi

format: $(OK) ## ruff, mending what it can
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

clean: ## remove .venv, caches and builds; graphs under data/ stay
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis test-results
	find gnnsample_lab widgets tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Python: the named one, else the first of 3.11 to 3.14 (all pins have wheels there), else anything newer.
# doctor.py is asked before anything is installed, so it runs isolated and needs the standard library alone.
$(OK): pyproject.toml constraints.txt
	@set -e; found=; bare=; \
	usable() { command -v "$$1" >/dev/null 2>&1 && "$$1" -c "import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, $$2))" 2>/dev/null; }; \
	for newest in 14 99; do for p in $(or $(PYTHON),python3 python3.13 python3.12 python3.11 python3.14 python); do \
	  if [ -z "$$found" ] && usable $$p $$newest; then \
	    if $$p -c "import ensurepip, venv" 2>/dev/null; then found=$$p; else bare=$$p; fi; \
	  fi; done; done; \
	if [ -z "$$found" ]; then \
	  if [ -n "$$bare" ]; then echo "$$bare cannot make environments: install its venv module (apt-get install python3-venv)." >&2; \
	  else echo "Python 3.11 or newer is needed, and $(or $(PYTHON),python3) is not that. Install one, or name it: make PYTHON=/path/to/python3.12" >&2; fi; \
	  exit 1; fi; \
	extra=$$($$found -I gnnsample_lab/doctor.py --cuda-extra); \
	echo "setting up $(VENV) with $$($$found --version)$${extra:+, CuPy for the NVIDIA driver found here ($$extra)}"; \
	$$found -m venv $(VENV); \
	$(PIP) --upgrade pip; \
	$(PIP) -e ".[dev$${extra:+,$$extra}]"; \
	touch $@
