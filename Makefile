# What a contributor runs; .ci/run calls `make check`.
UV ?= uv
RUN = $(UV) run --group dev
TREE = .typecheck

.PHONY: check format lint types test docs bench clean

check: lint types test

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

test:
	$(RUN) pytest

bench:
	for script in benchmarks/*.py; do $(RUN) python $$script || exit 1; done

clean:
	rm -rf $(TREE) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
