# Needs Python 3.11 or later, make and a network; everything else goes into $(VENV).
#
#   make demo ARGS="--help"           arguments for the command behind demo, bench and test
#   make demo PYTHON=/path/to/python  the Python to build $(VENV) with
#   make test WORKERS=4               processes that check the types and run the tests

VENV    ?= .venv
WORKERS ?= 2
ARGS    ?=
PYTHON  ?=

BIN  := $(VENV)/bin
PY   := $(BIN)/python
CORE := $(VENV)/.installed
DEV  := $(VENV)/.installed-dev
LOWEST := $(VENV)-minimum/.installed
MINIMUM_TESTS := tests/test_lists.py tests/test_storage.py tests/test_environments.py \
  "tests/test_report.py::test_regret_is_drawn_at_any_length_also_where_there_is_none" \
  "tests/test_documentation.py::test_examples_of_a_page_run_as_written[README.md]"
# Modules become bytecode when they are first imported: most of what is installed never is. Tests start many processes,
# which read it, so it is written whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=
PIP  := $(PY) -m pip install -qq --no-compile --disable-pip-version-check --constraint constraints.txt

# Each test process uses one thread for linear algebra.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help install demo test minimum lint format bench docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

install: $(DEV)  ## Install the package and its development tools into the environment

demo: $(CORE)  ## Show what the library does: an answer, its page, and what selection costs
	@$(BIN)/occamrl demo $(ARGS)

test: lint  ## Check style, types and layers, then run every test
	@echo "pytest"
	@$(TEST_ENV) $(PY) -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder $(ARGS)

lint: $(DEV)  ## Check style, types and layers only
	@echo "ruff check" && $(BIN)/ruff check --quiet .
	@echo "ruff format --check" && $(BIN)/ruff format --check --quiet .
	@echo "mypy" && $(BIN)/mypy --num-workers $(WORKERS)
	@echo "lint-imports" && $(BIN)/lint-imports --no-logo

minimum: $(LOWEST)  ## Run a core of the tests with the lowest versions that are declared
	@echo "pytest, lowest versions"
	@$(TEST_ENV) $(VENV)-minimum/bin/python -m pytest -q -n $(WORKERS) -p no:cacheprovider $(MINIMUM_TESTS)

format: $(DEV)  ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: $(CORE)  ## Measure how time grows with the number of episodes and with the size of problems
	@$(PY) -m studies.bench $(ARGS)

docs: $(DEV)  ## Build the site into docs/_build, notebooks executed, warnings as errors
	@$(PIP) --editable '.[dev,docs]'
	@$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build
	@echo "Open docs/_build/index.html"

clean:  ## Remove the environment, caches, builds and what the demo wrote
	@rm -rf "$(VENV)" "$(VENV)-minimum" .cache .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build demo dist docs/_build docs/site docs/.jupyter_cache docs/jupyter_execute
	@find src tests studies -type d -name __pycache__ -prune -exec rm -rf {} +

# A stamp records that the packages are installed. It lies inside the environment, so both are removed together; a change of
# the requirements makes it out of date, and the packages are installed again.
$(CORE): pyproject.toml constraints.txt | $(PY)
	@echo "Installing occamrl into $(VENV) (a minute or so, once)"
	@$(PIP) --editable .
	@touch $@

$(DEV): pyproject.toml constraints.txt | $(PY)
	@echo "Installing occamrl and its development tools into $(VENV) (a minute or so, once)"
	@$(PIP) --editable '.[dev]'
	@touch $(CORE) $@

$(LOWEST): pyproject.toml constraints-minimum.txt | $(PY)
	@echo "Installing the lowest versions into $(VENV)-minimum (once)"
	@$(PY) -m venv --clear $(VENV)-minimum
	@$(VENV)-minimum/bin/python -m pip install -qq --no-compile --disable-pip-version-check \
	  --constraint constraints-minimum.txt --editable . hypothesis pytest pytest-xdist
	@touch $@

$(PY):
	@new='import sys; sys.exit(sys.version_info < (3, 11))'; \
	seen=; python=; \
	for name in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14 python); do \
	  command -v "$$name" >/dev/null 2>&1 || continue; \
	  seen="$$seen $$("$$name" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)"; \
	  if "$$name" -c "$$new" 2>/dev/null; then python=$$name; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "occamrl needs Python 3.11 or later; found:$${seen:- none}." >&2; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "$$python cannot make virtual environments; install its venv module (Debian, Ubuntu: python3-venv)." >&2; exit 1; \
	fi; \
	echo "Creating $(VENV) with $$("$$python" --version)"; \
	"$$python" -m venv --clear "$(VENV)" || { rm -rf "$(VENV)"; exit 1; }
