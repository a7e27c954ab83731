# Everything starts here. `make demo` and `make test` set up what they need; a second call skips what is done.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
INSTALL := $(PIP) install -qq --constraint constraints.txt
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo browser test lint format types docs bench soak wheel clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 10

setup: $(READY)  ## create .venv with everything in it

$(READY): pyproject.toml constraints.txt
	@echo "set-up 1/3: the environment in .venv"
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	@echo "set-up 2/3: PyTorch (the largest download)"
	@$(INSTALL) torch
	@echo "set-up 3/3: interp and its other dependencies"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

demo: $(READY)  ## the first real result: lens, induction heads and a traced fact of SmolLM2-135M, as a report
	@$(BIN)/interp demo

browser:  ## a Chromium for the tests of HTML pages, installed with apt if there is none
	@sh tests/apps/browser.sh

# Two processes with one thread each: most models are tiny, and threads that wait for each other cost more than they give.
# The few tests that take two all the same do not let one spin while it waits: the other process needs the core.
test: export OMP_NUM_THREADS = 1
test: export OMP_WAIT_POLICY = passive
test: $(READY) browser  ## all tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal

lint: $(READY)  ## style, imports, formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(READY)  ## put the code into the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

types: $(READY)  ## type-check the tree, then the content of the wheel built from it
	@$(BIN)/mypy
	@rm -rf build && scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && \
		$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir "$$scratch" . && rm -rf build && \
		$(PIP) install -qq --no-deps --target "$$scratch/site" "$$scratch"/*.whl && \
		python=$$PWD/$(BIN)/python && config=$$PWD/pyproject.toml && cd "$$scratch/site" && \
		"$$python" -m mypy --config-file "$$config" --python-executable "$$python" --cache-dir "$$scratch/cache" -p interp

docs: $(READY)  ## write the pages that come from the code
	@$(BIN)/python docs/generate.py

bench: $(READY)  ## speed and memory, as ratios against transformers
	@$(BIN)/python -m benchmarks

# PYTHONPATH: beside the script, the folder tests/interp would be taken for the package
soak: $(READY)  ## all long checks: threads on one model, damaged models, killed and damaged runs, studies, browser sessions
	@PYTHONPATH=. $(BIN)/python tests/soak.py 120
	@PYTHONPATH=.:tests/models $(BIN)/python tests/soak.py damaged 300
	@PYTHONPATH=. $(BIN)/python tests/soak.py runs 1000
	@PYTHONPATH=. $(BIN)/python tests/soak.py studies 10000 20
	@PYTHONPATH=.:tests:tests/apps $(BIN)/python tests/apps/dashboard_soak.py 300

wheel: $(READY)  ## build dist/interp-*.whl
	@rm -rf build dist
	@$(PIP) wheel -qq --no-deps --no-build-isolation --wheel-dir dist .
	@rm -rf build
	@ls dist

clean:  ## remove what was built and cached; .venv stays
	@rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache
	@find . -path ./.venv -prune -o -name __pycache__ -type d -print0 | xargs -0 rm -rf
