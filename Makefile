# Short names for README commands, for those who have make.
RUN := .venv/bin/python

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile
setup:  ## virtual environment with everything
	python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' -c constraints.txt
fast:  ## tests that take seconds and need no model
	$(RUN) -m pytest -m "not slow and not real_model"
test:  ## every test, lint, format and type check
	$(RUN) -m pytest -n 2
format:  ## ruff's fixes and format
	$(RUN) -m ruff check --fix . && $(RUN) -m ruff format .
bench:  ## tree building against the sequential heap
	$(RUN) benchmarks/tree_build.py

.PHONY: help setup fast test format bench
