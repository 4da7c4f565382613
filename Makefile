PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test soak wheel lint bench reproduce clean

setup: $(READY)

$(READY): pyproject.toml setup.py $(wildcard src/hiddenarm/*/*.c src/hiddenarm/*/*.h)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/hiddenarm demo

test: setup lint
	$(BIN)/python -m pytest

soak: setup wheel
	HIDDENARM_HARD_WORLDS=1000 $(BIN)/python -m pytest tests/bandit/test_hard_data.py
	HIDDENARM_SEEDS=1000 $(BIN)/python -m pytest -s tests/simulator
	$(BIN)/python tests/recovery/soak.py --steps 2000 --kills 200
	HIDDENARM_SOAK=1 $(BIN)/python -m pytest -s tests/roles/test_attacked.py tests/roles/test_threads.py
	HIDDENARM_SOAK=1 $(BIN)/python -m pytest -s tests/test_wheel.py

# Without build/ of before: files that are gone from the source would get into the wheel.
wheel: setup
	rm -rf build dist
	$(BIN)/python -m build --wheel --outdir build/wheel .
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --strip --wheel-dir dist build/wheel/hiddenarm-*.whl

lint: setup
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m benchmarks

reproduce: setup
	$(BIN)/hiddenarm reproduce all --quick --out reproduction

clean:
	rm -rf $(VENV) build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
