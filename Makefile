# Every target sets itself up: a machine with Python 3.11, pip, make and a C compiler is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

.PHONY: help setup demo test test-slow test-statistics test-faults coverage mutants fuzz audit licences lock check-lock check format docs clean bench bench-setup paper paper-quick paper-report molecules

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / - /'

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,docs]'
	@touch $(DOCS_STAMP)

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

fuzz: $(STAMP)  ## 10,000 each of mutated models, conditions and tables, refused or harmless; 300 random fits for each invariant
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz_load.py
	FUZZ_EXAMPLES=10000 OMP_NUM_THREADS=1 $(BIN)/pytest tests/test_security.py -n 0 -k "any_ or damaged"
	FUZZ_FITS=300 OMP_NUM_THREADS=1 $(BIN)/pytest tests/test_invariants.py -n 0

coverage: $(STAMP)  ## lines of src that the tests run, processes they start included; fails below 95 %
	rm -f .coverage .coverage.*
	OMP_NUM_THREADS=1 $(BIN)/coverage run -m pytest -m "not slow and not faults" -n 2
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

COUNT ?= 40
SEED ?= 0

mutants: $(STAMP)  ## change operators and numbers of five modules, a sample of COUNT each by SEED: their tests must fail
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutants.py $(MODULES) --count $(COUNT) --seed $(SEED)

test-statistics: $(STAMP)  ## coverage, uniform F(y|x) and bounds over ten seeds of every simulator; results in benchmarks/results/trust.csv
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.trust

# pip-audit passes over packages that its database does not know, or cannot be asked about, unless it is strict.
audit: $(STAMP) licences  ## known weaknesses of the packages in .venv (asks the advisory database, needs a network) and their licences
	$(BIN)/pip install --disable-pip-version-check -q pip-audit
	$(BIN)/pip freeze --exclude-editable > $(VENV)/frozen.txt
	$(BIN)/pip-audit --strict --no-deps --disable-pip -r $(VENV)/frozen.txt

licences: $(STAMP)  ## licences of what ncprob depends on; any GPL fails
	$(BIN)/pip install --disable-pip-version-check -q pip-licenses
	$(BIN)/pip-licenses --fail-on "GPL;AGPL" --partial-match --packages torch numpy scipy scikit-learn threadpoolctl safetensors narwhals tqdm rich jaxtyping typer pyarrow matplotlib plotly jinja2

lock: $(STAMP)  ## write requirements-dev.lock: versions and hashes of everything that `make setup` installs here
	$(BIN)/pip install --disable-pip-version-check -q --dry-run --ignore-installed --report $(VENV)/report.json -c constraints.txt -e '.[dev]'
	$(BIN)/python .ci/lock.py < $(VENV)/report.json > requirements-dev.lock

check-lock: $(STAMP)  ## download what requirements-dev.lock names and compare hashes; installs nothing
	$(BIN)/pip install --disable-pip-version-check -q --dry-run --ignore-installed --no-deps --require-hashes -r requirements-dev.lock

check: $(STAMP)  ## lint, formatting, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_architecture.py

format: $(STAMP)  ## format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Warnings are errors, and so is an example that misses the truth. Nothing is asked of other machines.
docs: $(DOCS_STAMP)  ## build the documentation site with its gallery in docs/_build; any warning is an error
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

SUITE ?= density-1e4

bench-setup: $(STAMP)  ## install the rivals of the benchmarks
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,benchmarks]'

bench: $(STAMP)  ## run a suite of benchmarks, e.g. make bench SUITE=real JOBS=2; goes on where it was stopped
	$(BIN)/python -m benchmarks.runner --suite $(SUITE) $(if $(JOBS),--jobs $(JOBS))

paper-quick: bench-setup  ## every method on every model of the paper, 3 seeds, reduced: stops after two hours (HOURS), says what remains, goes on when called again
	$(BIN)/python -m benchmarks.paper --quick $(if $(HOURS),--hours $(HOURS))

paper: bench-setup  ## all experiments, most with ten seeds: hours to days, resumable, uses an accelerator when there is one
	$(BIN)/python -m benchmarks.paper

paper-report: $(STAMP)  ## write benchmarks/report.md, docs/benchmarks.md and their plots from benchmarks/results
	$(BIN)/python -m benchmarks.report

molecules: $(STAMP)  ## simulate a protein that folds, learn its dynamics, compare with counting: some 6 minutes on two cores
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt -e '.[dev,md]' 'deeptime>=0.4.4'
	$(BIN)/python -m benchmarks.molecules all

clean:  ## remove what the other targets made
	rm -rf $(VENV) demo-output paper-quick molecules-output .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist docs/_build docs/gallery docs/api/generated
