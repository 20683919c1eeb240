# Everything here works on a fresh clone with Python >= 3.11, pip and make; it all happens in .venv.
#   make demo    install roundoff and run it on the data that ships with it
#   make test    install roundoff with its test tools and run every test, on all cores
#   make test-fast    the tests of the spine, for the loop of writing
#   make test-suite   suites with a cluster, an S3 server and an ssh server of their own
#   make test-lowest  the same with the lowest declared versions of what it needs
#   make goldens keep what every command gives now as what it must give
#   make mutants plant faults in numbers, and see that tests notice each
#   make judges  install vendors' own tools in .judges, and have them run, predict and judge models of ours
#   make lint    style, types and import layers
#   make docs    the documentation site
#   make bench   speed and memory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# -qq hides pip's chatter and warnings, not its errors.
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq

.PHONY: demo test test-fast test-suite test-lowest goldens mutants judges lint docs bench clean
.NOTPARALLEL:

demo: $(VENV)/.installed
	@$(BIN)/roundoff demo -o out/demo --force

test: $(VENV)/.installed-test $(VENV)/.browser
	@$(BIN)/python -m pytest -n auto --dist worksteal

# What every other test stands on; under a minute on two cores.
FAST := tests/contracts tests/core tests/measure tests/messages tests/pages tests/preprocessing tests/samples \
  tests/tensors tests/test_errors.py tests/test_public_api.py
test-fast: $(VENV)/.installed-test
	@$(BIN)/python -m pytest -n auto --dist worksteal -m 'not slow' $(FAST)

# What needs a scheduler, an S3 server or an ssh server; some 200 MB more than the other tests.
test-suite: $(VENV)/.installed-test
	@$(PIP) install -e '.[test,test-suite]'
	@$(BIN)/python -m pytest tests/suite
	@$(BIN)/python -m benchmarks suite

# An environment of its own, in which every requirement has the lowest version that pyproject.toml allows.
LOWEST := .venv-lowest
test-lowest: $(LOWEST)/.installed
	@$(LOWEST)/bin/python -m pytest -n auto --dist worksteal -m 'not slow' $(FAST) tests/graph tests/run tests/quantize

$(LOWEST)/.installed: pyproject.toml scripts/lowest_versions.py
	@$(PYTHON) -m venv $(LOWEST)
	@$(PYTHON) scripts/lowest_versions.py > $(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check -qq install -e '.[test]' -c $(LOWEST)/constraints.txt
	@touch $@

# CASES='layers*' keeps some of them; 'python -m tests.goldens --diff' shows what moved, and writes nothing.
goldens: $(VENV)/.installed-test
	@$(BIN)/python -m tests.goldens --update $(if $(CASES),'$(CASES)')

mutants: $(VENV)/.installed-test
	@$(BIN)/python -m tests.mutants

# Each tool in an environment of its own in JUDGES; one that cannot be had is left out, and its tests are skipped.
JUDGES ?= .judges
judges: $(VENV)/.installed-test
	@$(BIN)/python -m scripts.judges $(JUDGES)
	@ROUNDOFF_JUDGES=$(JUDGES) $(BIN)/python -m pytest -rs tests/judges

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site in out/site: two languages, searchable, without a broken link.
docs: $(VENV)/.installed-docs
	@$(BIN)/python -m scripts.docs_site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "out/site/index.html"

$(VENV)/.installed-docs: pyproject.toml $(VENV)/.installed
	@$(PIP) install -e '.[docs]'
	@touch $@

bench: $(VENV)/.installed-test
	@$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) $(LOWEST) out build dist

# The stamps make the environment follow pyproject.toml; an interrupted install leaves no stamp and is repeated.
$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "error: roundoff needs Python 3.11 or newer; '$(PYTHON) --version' says: $$($(PYTHON) --version 2>&1)" >&2; \
	  echo "fix: name a newer one, for example: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.python
	@echo "Installing roundoff into $(VENV)"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.installed-test: pyproject.toml $(VENV)/.python
	@echo "Installing roundoff and its test tools into $(VENV)"
	@$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.installed

# Reports are tested in a real browser. Where none is there and none can be had, those tests say so and are skipped.
$(VENV)/.browser: $(VENV)/.python
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "Installing chromium" && \
	  apt-get update -qq >/dev/null 2>&1 && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null 2>&1; } || \
	  echo "No browser could be installed; its tests will be skipped"
	@touch $@
