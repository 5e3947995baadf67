# Two commands: `make demo` and `make test`. Each sets up what is missing; a second run installs nothing.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := formats,metaworld,libero,pusht,ray,export,serve,report,hf,wandb,dev
WITHOUT_DEPENDENCIES := hf-libero==0.1.4 openpi-client==0.1.2  # what they pin or pull in is for other code than we call
export MPLBACKEND := Agg

.PHONY: help setup demo test lint unit bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   collect demonstrations of a MetaWorld task, describe them, draw them (out/)"
	@echo "make test   lint, types and tests"
	@echo "make bench  the benchmarks, printed as tables"
	@echo "make clean  remove the virtual environment and outputs"

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$(EXTRAS)]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps $(WITHOUT_DEPENDENCIES)
	scripts/install-graphics.sh $(BIN)/python
	touch $@

$(VENV)/.browser: $(VENV)/.installed
	command -v chromium > /dev/null || scripts/install-package.sh chromium "tests of the page in a browser"
	touch $@

demo: setup
	rm -rf out/demo
	$(BIN)/oat collect metaworld --tasks drawer-open --episodes 10 --out out/demo/drawer-open \
		$$($(BIN)/python -m oat.sims.rendering > /dev/null && echo --cameras corner2)
	$(BIN)/oat inspect out/demo/drawer-open --picture out/demo/drawer-open.png

test: setup lint unit

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

unit: setup $(VENV)/.browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

bench: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/tokenizers.py speed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/policies.py

clean:
	rm -rf $(VENV) out
