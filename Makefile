# Every target sets itself up: a machine with Python 3.11, pip, make and a C compiler is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help setup demo test test-slow test-faults fuzz audit check format docs clean bench bench-setup paper paper-quick paper-report molecules

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / - /'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

setup: $(STAMP)  ## create .venv with everything a developer needs

demo: $(STAMP)  ## fit on simulated data, print answers beside the exact truth, write a picture
	$(BIN)/ncprob demo --out demo-output

# One thread per worker: two workers on two cores, threads of one would only wait for the other.
test: $(STAMP)  ## unit, law and doc tests (minutes)
	OMP_NUM_THREADS=1 $(BIN)/pytest -m "not slow and not faults" -n 2

test-slow: $(STAMP)  ## statistical tests over many simulated data sets
	OMP_NUM_THREADS=1 $(BIN)/pytest -m slow -n 2

test-faults: $(STAMP)  ## kill fits and saves at random moments, fill the disk, take rights away: nothing may be lost
	OMP_NUM_THREADS=1 $(BIN)/pytest -m faults -n 0 -s

fuzz: $(STAMP)  ## load 10,000 mutated model files: each refused by a ValueError or harmless
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz_load.py

audit: $(STAMP)  ## known weaknesses of the packages in .venv (asks the advisory database, needs a network) and their licences
	$(BIN)/pip install --disable-pip-version-check -q pip-audit pip-licenses
	$(BIN)/pip-audit --skip-editable
	$(BIN)/pip-licenses --fail-on "GPL;AGPL" --partial-match --packages torch numpy scipy scikit-learn threadpoolctl safetensors narwhals tqdm rich jaxtyping

check: $(STAMP)  ## lint, formatting, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_architecture.py

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## build the documentation site with its gallery in docs/_build; any warning is an error
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,docs]'
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

SUITE ?= density-1e4

bench-setup: $(STAMP)  ## install the rivals of the benchmarks
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,benchmarks]'

bench: $(STAMP)  ## run a suite of benchmarks, e.g. make bench SUITE=real JOBS=2; goes on where it was stopped
	$(BIN)/python -m benchmarks.runner --suite $(SUITE) $(if $(JOBS),--jobs $(JOBS))

paper-quick: bench-setup  ## every method on every model of the paper, 3 seeds, reduced: about two hours on two cores, resumable
	$(BIN)/python -m benchmarks.paper --quick

paper: bench-setup  ## all experiments, most with ten seeds: hours to days, resumable, uses an accelerator when there is one
	$(BIN)/python -m benchmarks.paper

paper-report: $(STAMP)  ## write benchmarks/report.md, docs/benchmarks.md and their plots from benchmarks/results
	$(BIN)/python -m benchmarks.report

molecules: $(STAMP)  ## simulate a protein that folds, learn its dynamics, compare with counting: some 10 minutes on two cores
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,md]' 'deeptime>=0.4.4'
	$(BIN)/python -m benchmarks.molecules all

clean:  ## remove what the other targets made
	rm -rf $(VENV) demo-output paper-quick molecules-output .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist docs/_build docs/gallery docs/api/generated
