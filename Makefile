# Two commands: `make demo` and `make test`. Each sets up what is missing; a second run installs nothing.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := formats,metaworld,libero,robocasa,pusht,ray,export,serve,report,rerun,hf,wandb,docs,dev
# What these pin or pull in is for other code than we call.
WITHOUT_DEPENDENCIES := praxis-robosuite==1.5.2.post1 praxis-libero==0.1.1.post1 praxis-robocasa==1.0.0 openpi-client==0.1.2
export MPLBACKEND := Agg

.PHONY: help setup demo test test-lerobot lint docs unit campaign wheel bench clean
.DEFAULT_GOAL := help

help:
	@echo "make demo   MetaWorld demonstrations, a tokenizer, a policy, its success for K = 1, 2, 4, 8: out/demo/page.html"
	@echo "make test   lint, types, the documentation, the tests and two minutes of the campaign"
	@echo "make test-lerobot  the tests inside LeRobot and praxis-eval, in an environment of their own"
	@echo "make docs   the documentation as a site: out/site/index.html"
	@echo "make wheel  what is published, a wheel and a source distribution: out/dist"
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

DEMO := out/demo
demo: setup
	rm -rf $(DEMO)
	$(BIN)/oat collect metaworld --tasks drawer-open button-press-topdown --episodes 40 --out $(DEMO)/demos
	$(BIN)/oat fit --data $(DEMO)/demos --tokenizer oat --preset cpu --steps 800 --out $(DEMO)/tokenizers/oat
	$(BIN)/oat fit --data $(DEMO)/demos --tokenizer fast --out $(DEMO)/tokenizers/fast
	$(BIN)/oat fit --data $(DEMO)/demos --tokenizer bin --out $(DEMO)/tokenizers/bin
	$(BIN)/oat inspect $(DEMO)/tokenizers/oat --data $(DEMO)/demos --picture $(DEMO)/coarse-to-fine.png
	$(BIN)/oat train --data $(DEMO)/demos --tokenizer $(DEMO)/tokenizers/oat --preset cpu --steps 1500 --out $(DEMO)/policies/oat
	$(BIN)/oat eval $(DEMO)/policies/oat --sim metaworld --episodes 20 --num-tokens 1 2 4 8 --out $(DEMO)/records/oat \
		$$($(BIN)/python -m oat.sims.rendering > /dev/null && echo --videos 1)
	$(BIN)/oat report $(DEMO) --out $(DEMO)/page.html

# Lint and the campaign are over before the tests are, which leave processors idle now and then: all at once takes least.
test: setup $(VENV)/.browser
	$(MAKE) --jobs 3 lint campaign unit

lint: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

unit: setup $(VENV)/.browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

# Pinned by LeRobot or praxis-eval otherwise than by us, so that our constraints do not hold in their environment.
LEROBOT_VENV := .venv-lerobot
LEROBOT_BIN := $(LEROBOT_VENV)/bin
LEROBOT_OWN := ^(av|diffusers|gymnasium|metaworld)==
LEROBOT_PACKAGES := lerobot==0.4.4 praxis-eval==0.1.3 torchvision==0.28.0
LEROBOT_FILES := integrations/requirements.txt integrations/torchvision_stand_in.py integrations/lerobot_policy_oat/pyproject.toml

$(LEROBOT_VENV)/.installed: $(LEROBOT_FILES) constraints.txt pyproject.toml
	test -x $(LEROBOT_BIN)/python || $(PYTHON) -m venv $(LEROBOT_VENV) || python3 -m venv $(LEROBOT_VENV)
	grep -v -E '$(LEROBOT_OWN)' constraints.txt > $(LEROBOT_VENV)/constraints.txt
	$(LEROBOT_BIN)/python -m pip install --quiet --disable-pip-version-check -c $(LEROBOT_VENV)/constraints.txt -r integrations/requirements.txt
	$(LEROBOT_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(LEROBOT_PACKAGES)
	$(LEROBOT_BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e . -e integrations/lerobot_policy_oat
	cp integrations/torchvision_stand_in.py $$($(LEROBOT_BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")
	echo "import torchvision_stand_in" > $$($(LEROBOT_BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/torchvision_stand_in.pth
	scripts/install-graphics.sh $(LEROBOT_BIN)/python
	touch $@

test-lerobot: $(LEROBOT_VENV)/.installed
	OMP_NUM_THREADS=1 $(LEROBOT_BIN)/python -m pytest -c integrations/pytest.ini integrations/tests

campaign: setup
	rm -rf out/campaign
	$(BIN)/python -m benchmarks.campaign --minutes 2 --out out/campaign

wheel: setup
	rm -rf out/dist
	$(BIN)/python -m build --no-isolation --outdir out/dist

bench: setup
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/tokenizers.py speed
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/policies.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/evaluation.py

clean:
	rm -rf $(VENV) $(LEROBOT_VENV) out
