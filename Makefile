# Two commands do everything on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint bench docs notebooks clean

demo: $(VENV)/.installed
	$(BIN)/ct-dip demo --out demo

test: $(VENV)/.installed-test lint
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks operators

docs: $(VENV)/.installed-docs  # site/index.html; fails at the first warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

notebooks: $(VENV)/.installed-test  # run, and stored with their pictures; ten minutes
	$(BIN)/python notebooks/execute.py

clean:
	rm -rf $(VENV) demo site

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.installed-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@
