# What a contributor runs; .ci/run calls `make check`.
UV ?= uv
RUN = $(UV) run --group dev
TREE = .typecheck
PYTEST ?= -n auto

.PHONY: check format lint types docs docs-fresh test bench clean

check: lint types docs-fresh test

format:
	$(RUN) ruff format .
	$(RUN) ruff check --fix .

lint:
	$(RUN) ruff format --check .
	$(RUN) ruff check .

# The editable install is invisible to type checkers, so the installed tree is what is checked.
types:
	rm -rf $(TREE)
	$(UV) pip install --quiet --no-deps --target $(TREE) .
	cd $(TREE) && ../.venv/bin/mypy --strict hotswap

# The generated parts of the documentation.
docs:
	$(RUN) python docs/_generate.py

docs-fresh:
	$(RUN) python docs/_generate.py --check

test:
	$(RUN) pytest $(PYTEST)

bench:
	for script in benchmarks/*.py; do $(RUN) python $$script || exit 1; done

clean:
	rm -rf $(TREE) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
