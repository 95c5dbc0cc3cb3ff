# make demo    from nothing to the main job: a virtual environment, real checkpoints, their verdicts
# make quick   the tests of what changed, or a fast subset, within a minute
# make test    sets up what the tests need and runs all of them
# make test-light LIGHT=python3.12  what needs no torch, on another Python
# make check   ruff, mypy, import-linter, the wheel's content, a wheel and an editable install, the plugin template
# make bench   the speed table, as ratios in one interleaved run
# make docs    writes the generated pages of docs/ again
# make mutants MODULES="package/module.py package/folder"  looks for changes that no test sees (tools/mutants/__init__.py);
#                TESTS=, COUNT=, SEED=, LIMIT=, JSON= say which tests, how many mutants, which, for how long, and the report
# make gpu-test  proves the kernels on this machine's GPU and writes a receipt; installs nothing (docs/gpu.md)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
WORKERS ?= 2

.PHONY: demo quick test test-light check bench docs mutants gpu-test clean

demo: $(VENV)/test.done
	HF_HUB_OFFLINE=1 $(BIN)/python demo/demo.py

test: $(VENV)/test.done
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

# What needs no torch, in an environment of its own, so that each Python that the metadata names runs it.
LIGHT ?= python3
LIGHT_BIN := .venv-light/$(notdir $(LIGHT))/bin

test-light:
	test -x $(LIGHT_BIN)/python || $(LIGHT) -m venv .venv-light/$(notdir $(LIGHT))
	$(LIGHT_BIN)/python -m pip --disable-pip-version-check -qq install -c constraints.txt -r requirements-light.txt -e .
	$(LIGHT_BIN)/python tools/light_tests.py -n $(WORKERS) $(PYTEST_ARGS)

quick: $(VENV)/test.done
	$(BIN)/python tools/quick.py

check: $(VENV)/test.done $(VENV)/check.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	test ! -e cuda/__init__.py
	$(BIN)/python docs/generate.py --check
	$(BIN)/python tests/check_distributions.py
	$(BIN)/python tests/check_template.py

bench: $(VENV)/test.done
	$(BIN)/python benchmarks/bench.py

docs: $(VENV)/test.done
	$(BIN)/python docs/generate.py

TESTS ?= $(filter-out tests/kernels/ tests/tools/,$(wildcard tests/*/))
MUTANTS_ARGS = $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED)) $(if $(LIMIT),--limit $(LIMIT)) $(if $(JSON),--json $(JSON))

mutants: $(VENV)/test.done
	PYTHONPATH=tools$${PYTHONPATH:+:$$PYTHONPATH} $(BIN)/python -m mutants $(MODULES) --tests $(TESTS) $(MUTANTS_ARGS)

# With a Python that is named, or the virtual environment's, or the system's; nothing is installed, and no network is asked.
GPU_PYTHON = $(if $(filter file,$(origin PYTHON)),$(firstword $(wildcard $(BIN)/python) $(PYTHON)),$(PYTHON))

gpu-test:
	PYTHONPATH=.:decoders:cuda$${PYTHONPATH:+:$$PYTHONPATH} $(GPU_PYTHON) tests/kernels/gpu_receipt.py $(GPU_TEST_ARGS)

clean:
	rm -rf $(VENV) .venv-light dist demo-checkpoints benchmarks/trees

# A virtual environment with the package installed for editing, and what each group of pyproject.toml needs. pip of
# every Python that we support can read requirement files; few can read dependency groups.
$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/test.done: pyproject.toml constraints.txt requirements-test.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -r requirements-test.txt -e .
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m compileall -q tensorhub_contracts decoders cuda
	touch $@

$(VENV)/check.done: requirements-check.txt constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt -r requirements-check.txt
	touch $@
