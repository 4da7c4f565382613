PYTHON ?= python3
CC ?= gcc
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SANITISED := build/sanitised

# Many tests wait for processes: one worker more than there are cores. The files that take longest come first.
WORKERS ?= $(shell expr $$(nproc) + 1)
PARALLEL := -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# Processes that tests start need not compile the package again.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
FIRST_TIER := -m "not processes and not long"

# Of C that reads or writes where it must not, or whose behaviour C does not define, the process ends at once.
SANITISERS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g
# Leaks are not looked for: the interpreter has its own. PYTHONMALLOC: every object is a block of its own.
UNDER_SANITISERS = LD_PRELOAD="$(shell $(CC) -print-file-name=libasan.so) $(shell $(CC) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 PYTHONMALLOC=malloc \
	PYTHONPATH=$(CURDIR)/$(SANITISED)/lib HIDDENARM_SANITISERS="$(SANITISERS)" CC=$(CC)

.PHONY: setup demo docs check test soak sanitise coverage vectors constraints wheel lint bench peers reproduce clean

setup: $(READY)

$(READY): pyproject.toml setup.py constraints.txt $(wildcard src/hiddenarm/*/*.c src/hiddenarm/*/*.h)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/hiddenarm demo

check: setup
	$(PYTEST) $(PARALLEL) $(FIRST_TIER)

test: setup lint
	$(PYTEST) -rfEs $(PARALLEL) -m "not timed"
	$(PYTEST) -rfEs -m timed

soak: setup wheel sanitise
	HIDDENARM_HARD_WORLDS=1000 $(PYTEST) tests/bandit/test_hard_data.py
	HIDDENARM_TRIALS=2000 $(PYTEST) tests/bandit/test_trials.py
	HIDDENARM_TRIALS=600 $(PYTEST) tests/bandit/test_joint_views.py
	HIDDENARM_SEEDS=1000 $(PYTEST) -s tests/simulator
	PYTHONPATH=tests $(BIN)/python tests/recovery/soak.py --steps 2000 --kills 200
	PYTHONPATH=tests $(BIN)/python tests/recovery/soak.py --steps 2000 --kills 200 --together
	HIDDENARM_SOAK=1 $(PYTEST) -s tests/roles/test_attacked.py tests/roles/test_threads.py tests/web/test_web_clients.py
	HIDDENARM_SOAK=1 $(PYTEST) -s tests/test_wheel.py
	HIDDENARM_SOAK=1 $(PYTEST) tests/cli/test_simulate.py tests/bandit/test_plain.py -k mnist
	HIDDENARM_SOAK=1 $(PYTEST) tests/docs/test_reward_slots_page.py

sanitise: setup
	rm -rf $(SANITISED)
	CC=$(CC) CFLAGS="$(SANITISERS)" LDFLAGS="$(SANITISERS)" $(BIN)/python setup.py --quiet build \
		--build-base $(SANITISED)/temp --build-lib $(SANITISED)/lib
	$(UNDER_SANITISERS) $(PYTEST) -p no:cacheprovider tests/sanitiser tests/ring tests/mpc tests/net/test_wire.py

coverage: setup
	$(PYTEST) $(PARALLEL) $(FIRST_TIER) --cov --cov-report=term

vectors: setup
	$(BIN)/python tests/vectors/wire_vectors.py

# Of what is installed now; to take newer versions, empty constraints.txt and `make clean setup` before.
constraints: setup
	$(BIN)/python -m pip --disable-pip-version-check freeze --all --exclude pip --exclude-editable > constraints.txt
	touch $(READY)

# Without build/ of before: files that are gone from the source would get into the wheel.
wheel: setup
	rm -rf build dist
	$(BIN)/python -m build --wheel --outdir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --strip --wheel-dir dist build/wheel/hiddenarm-*.whl

lint: setup
	$(BIN)/ruff check src tests benchmarks examples/*.py docs/site
	$(BIN)/ruff format --check src tests benchmarks examples/*.py docs/site
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

# Installs MPyC and SecretFlow SPU in environments of their own, in build/peers.
peers: setup
	$(BIN)/python -m benchmarks.peers

# A site of the documents, with the API reference; a link that leads nowhere is an error.
docs: setup
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet --fresh-env -c docs/site -d build/docs-cache . build/docs

reproduce: setup
	$(BIN)/hiddenarm reproduce all --quick --out reproduction

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .coverage
