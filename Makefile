# `make demo` and `make test` do all their own set-up in .venv on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  := 2.13.0

.PHONY: demo test check bench docs clean
.DEFAULT_GOAL := demo

$(VENV)/core: pyproject.toml
	@echo "setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# The exact pin first, so that nothing pulls a newer (GPU) build.
$(VENV)/torch: $(VENV)/core
	@echo "installing torch $(TORCH) (once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	@touch $@

demo: $(VENV)/torch
	@$(BIN)/python examples/demo.py

check: $(VENV)/core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: check $(VENV)/torch
	$(BIN)/python -m pytest

bench: $(VENV)/core
	PYTHONPATH=. $(BIN)/python -m benchmarks.run $(ARGS)

docs: $(VENV)/core
	$(BIN)/python -m stepscope.tables.reference > docs/tables.md

clean:
	rm -rf $(VENV) demo-run bench-data
