# The commands of this project; `make` lists them. Requires make and python3 (3.11 or newer, with
# venv and pip), nothing else.

PYTHON ?= python3
PORT ?= 3000

VENV := .venv
BIN := $(VENV)/bin
PINNED := pyproject.toml constraints.txt
CACHES := .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage build dist demo_pipeline.egg-info
INSTANCE := history schedules storage logs .logs_queue .nux .telemetry
AT_HOME := DAGSTER_HOME="$(CURDIR)"

# Scripts in an environment begin with the path of its Python: in a checkout that was moved, or after
# that Python was removed, they are "not found". Such an environment is built again.
STALE := $(shell [ ! -e $(VENV) ] || { [ -e $(BIN)/python ] && { [ ! -e $(BIN)/demo-pipeline ] || \
  head -n 2 $(BIN)/demo-pipeline | grep -qF "$(CURDIR)/$(VENV)/"; }; } || echo stale)

# Containers often switch cached bytecode off: every process would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
PROPERTY_EXAMPLES ?= 3000
CONSUMERS ?= /tmp/consumers
BAD_UPLOADS := bad-uploads bad-uploads-bucket bad-uploads-daemon bad-uploads-daemon-bucket

.PHONY: help help-dev browser setup setup-dev demo demo-s3 ui test coverage fast lock same planted golden code-versions docs pictures notebook truth property fuzz consumers replay canaries faults kills backfill ray old-stores lint doors clean clean-store

help:
	@echo 'First commands'
	@echo '  make demo         set up and turn the sample recordings into training data'
	@echo '  make test         set up and run the tests'
	@echo
	@echo 'Working with it'
	@echo '  make ui           open the Dagster UI on http://127.0.0.1:$(PORT) (another: PORT=3001)'
	@echo '  make demo-s3      watch uploads in a bucket become datasets (KEEP=1: leave the UI)'
	@echo '  make setup        install into $(VENV)/'
	@echo '  make fast         the tests of a minute: formats, logs, settings, packaging'
	@echo '  make lint         ruff (rules and format) and mypy'
	@echo '  make clean        remove $(VENV)/ and the caches'
	@echo '  make clean-store  remove data/store/ and the run history of Dagster'
	@echo '  make help-dev     what developers of this project need besides'

help-dev:
	@echo 'Written again after an intended change'
	@echo '  make golden         the golden outputs'
	@echo '  make code-versions  the code that every stage runs, after its code version was raised'
	@echo '  make docs           the pages that are generated from the code'
	@echo '  make pictures       the pictures of the pages, from the samples (PICTURES=strip: this one)'
	@echo '  make notebook       the outputs of examples/explore.ipynb, run on the samples'
	@echo '  make lock           requirements.lock, from constraints.txt'
	@echo
	@echo 'More tests'
	@echo '  make coverage       the lines that the tests do not run; it fails below 95 %'
	@echo '  make same           whether all that people see is as recorded (SAME=record: record it)'
	@echo '  make planted        whether the tests catch each planted fault (PLANTED=clock: these)'
	@echo '  make doors          the shell lines of the pages, as written, in a fresh clone'
	@echo '  make truth          how right the labels of hand-driven recordings are (TRUTH=record: record it)'
	@echo '  make property       thousands of random actions per platform'
	@echo '  make fuzz           a million damaged lines and 2,000 damaged logs (minutes)'
	@echo '  make consumers      the datasets in TRL, LLaMA-Factory, Axolotl … (10 GB of packages)'
	@echo '  make replay         four recordings, exported and replayed on a fresh desktop (minutes)'
	@echo '  make canaries       300 made secrets, looked for in all that is exported (an hour)'
	@echo '  make faults         the command line killed 150 times, 60 bad uploads (an hour)'
	@echo '  make kills          run, its workers, the daemon and new homes killed (half an hour)'
	@echo '  make backfill       1,000 partitions, cancelled half-way and launched again (minutes)'
	@echo '  make ray            a backfill on Ray, Postgres and S3, workers killed (minutes)'
	@echo '  make old-stores     whether the store of COMMIT=… has nothing to build today (minutes)'
	@echo '  make setup-dev      install, with the packages for tests and lint'

setup: $(VENV)/.installed

setup-dev: $(VENV)/.installed-dev

ifneq ($(STALE),)
  .PHONY: $(VENV)/bin/python $(VENV)/.installed $(VENV)/.installed-dev
endif

$(VENV)/bin/python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo '$(PYTHON) was not found. Install Python 3.11 or newer, or name one:' \
	    'make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo '$(PYTHON) is older than Python 3.11. Install a newer one, or name it:' \
	    'make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo '$(PYTHON) has no venv module. On Debian or Ubuntu:' \
	    'apt-get install python3-venv python3-pip' >&2; exit 1; }
	$(if $(STALE),@echo 'The environment in $(VENV)/ was made elsewhere or lost its Python.'; \
	  rm -rf $(VENV))
	@echo 'Creating $(VENV)/'
	@"$(PYTHON)" -m venv $(VENV)

$(VENV)/.installed: $(PINNED) | $(VENV)/bin/python
	@echo 'Installing demo_pipeline into $(VENV)/ (some minutes the first time)'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(PINNED) | $(VENV)/bin/python
	@echo 'Installing demo_pipeline with its tests into $(VENV)/ (some minutes the first time)'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $(VENV)/.installed $@

$(VENV)/.installed-ray: $(VENV)/.installed-dev
	@echo 'Installing Ray and its Dagster launcher into $(VENV)/'
	@$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev,ray]'
	@touch $@

# Moved into the inbox in one step: a sample is there as a whole, or not. What is there stays.
demo: setup
	@[ -z "$$DEMO_PIPELINE_UPLOADS" ] || { \
	  echo 'DEMO_PIPELINE_UPLOADS is set: these uploads are processed, and not the samples.'; exit 0; }; \
	mkdir -p data/recordings data/.cache; \
	for sample in data/samples/*; do \
	  inbox="data/recordings/$${sample##*/}"; \
	  [ ! -e "$$inbox" ] || continue; \
	  rm -rf data/.cache/sample && cp -R "$$sample" data/.cache/sample && mv data/.cache/sample "$$inbox" \
	    && echo "Copied $$sample to $$inbox" || exit 1; \
	done
	@$(AT_HOME) $(BIN)/demo-pipeline run
	@store="$${DEMO_PIPELINE_STORE:-data/store}"; \
	echo; \
	echo 'Where to look'; \
	echo "  $$store/dataset/     trajectories with index.json and metadata.json"; \
	echo "  $$store/datasets/    one folder per CUDAG dataset, with train, val and test"; \
	echo "  $$store/sft/         samples for supervised fine-tuning"; \
	echo "  $$store/messages/    the same steps as chats with images and tool calls"; \
	echo; \
	echo 'Next'; \
	echo '  $(BIN)/demo-pipeline review              watch, judge and correct the steps on a page'; \
	echo '  $(BIN)/demo-pipeline report data/report  write a page with every step, to send or publish'; \
	echo '  make ui                            see how it was built, in the Dagster UI on http://127.0.0.1:$(PORT)'

demo-s3: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.demo_s3 --port $(PORT) $(if $(KEEP),--keep)

ui: setup
	@$(AT_HOME) $(BIN)/demo-pipeline ui --port $(PORT)

# Tests of pages need Chromium. Where it cannot be had, exactly those are left out, and it is said.
browser:
	@for name in "$(CHROMIUM)" chromium chromium-browser google-chrome; do \
	  command -v "$$name" >/dev/null 2>&1 && exit 0; done; \
	[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null || exit 0; \
	echo 'Installing Chromium for the tests of pages'; \
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	  apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 || \
	  echo 'Chromium could not be installed: the tests of pages are left out'

# One process more than two cores: many tests wait for a server, a daemon or a browser.
test: setup-dev browser
	@$(BIN)/python -m pytest --numprocesses 3 --dist loadfile \
	  --no-loadscope-reorder $(COVER)

# Counting lines takes a third more time.
coverage: setup-dev
	@$(MAKE) --no-print-directory test COVER=--cov

fast: setup-dev
	@$(BIN)/python -m pytest -x $(addprefix demo_pipeline_tests/,files desktopd osworld recording \
	  test_architecture.py test_packaging.py test_problems.py test_settings.py)

lock: setup-dev
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --constraint constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-strip-extras --no-annotate --no-header --no-emit-index-url \
	  --quiet --output-file requirements.lock

golden: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.golden outputs

same: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.same $(SAME)

planted: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.planted $(PLANTED)

code-versions: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.golden code-versions

docs: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.pages

pictures: setup-dev browser
	@$(BIN)/python -m demo_pipeline_tests.pictures $(PICTURES)

notebook: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.notebook

truth: setup-dev
	@$(BIN)/python -m benchmarks.truth $(TRUTH)

property: setup-dev
	@PROPERTY_EXAMPLES=$(PROPERTY_EXAMPLES) $(BIN)/python -m pytest demo_pipeline_tests/actions/test_property.py \
		demo_pipeline_tests/exports/test_foreign_actions.py

fuzz: setup-dev
	@$(BIN)/python benchmarks/fuzz.py

consumers: setup-dev
	@$(BIN)/python benchmarks/consumers --scratch "$(CONSUMERS)"

replay: setup-dev
	@$(BIN)/python benchmarks/replay/replay.py $(REPLAY)

canaries: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.privacy $(CANARIES)

faults: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.faults $(FAULTS)
	@$(MAKE) --no-print-directory -j 3 $(BAD_UPLOADS) races

# Most of the time, these wait for a daemon or a server.
$(BAD_UPLOADS):
	@$(BIN)/python -m demo_pipeline_tests.faults.bad_uploads \
	  $(patsubst %,--%,$(subst -, ,$(patsubst bad-uploads%,%,$@)))

races:
	@$(BIN)/python -m demo_pipeline_tests.faults.races

kills: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.faults.killed_homes
	@$(BIN)/python -m demo_pipeline_tests.faults.dead_hosts
	@$(BIN)/python -m demo_pipeline_tests.faults.killed_runs $(KILLED)

backfill: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.faults.cancelled_backfill $(BACKFILL)

ray: $(VENV)/.installed-ray
	@$(BIN)/python -m demo_pipeline_tests.distributed $(RAY)

old-stores: setup-dev
	@[ -n "$(COMMIT)" ] || { echo 'name a commit: make old-stores COMMIT=HEAD~1' >&2; exit 1; }
	@$(BIN)/python -m demo_pipeline_tests.old_stores $(COMMIT) $(if $(RAISED),--raised)

lint: setup-dev
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

doors: setup-dev
	@$(BIN)/python -m demo_pipeline_tests.doors

clean:
	@rm -rf $(VENV) $(CACHES)
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

clean-store:
	@rm -rf data/store $(INSTANCE)
