# Two commands do everything on a fresh machine with Python 3.11+, a C++ compiler and make:
#   make demo   runs the paper's default experiment and shows the curve
#   make test   lints, type-checks and runs all tests
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# What an installed package depends on; Python sources are used in place.
BUILD := pyproject.toml $(wildcard CMakeLists.txt native/*)
DEMO ?=

.PHONY: demo test integration lint fast figures docs bench sanitize wheel wheel-test clean

demo: $(VENV)/.core
	$(BIN)/python tools/fetch_data.py --if-needed
	$(BIN)/fedtide run $(DEMO)

test: $(VENV)/.test lint
	$(BIN)/python tools/fetch_data.py --if-needed
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not alone and not integration" tests
	$(BIN)/python -m pytest -m "alone and not integration" tests

# Containers' build steps, the compose file's services as processes, Flower's simulation, and a federation under faults: minutes, and
# gigabytes from package indexes.
integration: $(VENV)/.test
	$(BIN)/python -m pip install --quiet "flwr[simulation]>=1.41,<2"
	$(BIN)/python -m pytest -m integration tests

# The quick part of the tests, for work in progress.
fast: $(VENV)/.test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not alone and not integration" tests

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests

# The README, every figure of it and of docs, and the pages docs/paper.md, worlds.md, skies.md, oracle.md, external.md and league.md, from stored results:
# minutes, nothing is run. The essay is build/essay.html, which is not committed. The picture of the explorer needs two short runs and a Chromium: python benchmarks/explorer.py.
figures: $(VENV)/.core
	$(BIN)/fedtide paper --draw-only
	$(BIN)/fedtide worlds --draw-only
	$(BIN)/fedtide skies --draw-only
	$(BIN)/fedtide oracle --draw-only
	$(BIN)/fedtide external --draw-only
	$(BIN)/fedtide league --draw-only
	$(BIN)/fedtide essay
	$(BIN)/fedtide study plot examples/study.yaml --store results/paper --out docs/figures/readme-schedulers
	$(BIN)/python benchmarks/codec_study.py
	$(BIN)/python benchmarks/figures.py
	$(BIN)/python benchmarks/draw_performance.py
	$(BIN)/python tools/readme.py

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/kernel.py

# The documentation as a site, in build/site, with example reports; a warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo "open build/site/index.html"

sanitize: $(VENV)/.test
	$(BIN)/python -m pip install --quiet nanobind
	PYTHON=$(abspath $(BIN)/python) bash native/sanitize.sh

# What others get: the source archive, and the wheel built from it; both checked, and the wheel installed where nothing else is and used
# from another folder.
WHEEL := build/wheel-test
wheel:
	rm -rf $(WHEEL)
	$(PYTHON) -m venv $(WHEEL)/tools
	$(WHEEL)/tools/bin/python -m pip install --quiet build twine
	$(WHEEL)/tools/bin/python -m build --outdir $(WHEEL)/dist .
	$(WHEEL)/tools/bin/python -m twine check --strict $(WHEEL)/dist/*

wheel-test: wheel
	$(PYTHON) -m venv $(WHEEL)/env
	$(WHEEL)/env/bin/python -m pip install --quiet $(WHEEL)/dist/*.whl
	bash .ci/tiny $(abspath $(WHEEL)/env/bin/python)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedtide needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python $(BUILD)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

# PyTorch goes first: its CPU build is pinned, and nothing later may pull another.
$(VENV)/.test: $(BIN)/python $(BUILD)
	$(BIN)/python -m pip install --quiet torch==2.13.0
	$(BIN)/python -m pip install --quiet --editable ".[test-all]"
	touch $(VENV)/.core $@

$(VENV)/.bench: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --editable ".[test-all,bench]"
	touch $@

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --editable ".[docs]"
	touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .hypothesis .mypy_cache .ruff_cache
