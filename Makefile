# The virtual environment that every target works in.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Nobody wants TensorFlow's greeting in front of every result.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help ops check test goldens lint bench example tpu wheel clean

help: ## Say what can be made.
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Rebuilt when the dependencies change; half an environment never counts as one.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[codegen,tpu]" --group dev
	@touch $@

ops: $(VENV)/.ready ## Regenerate every class from opdefs/.
	$(BIN)/opwright-codegen generate

check: $(VENV)/.ready ## Fail if generated/ is not what opdefs/ say.
	$(BIN)/opwright-codegen generate --check

test: $(VENV)/.ready ## Run every test.
	$(BIN)/python -m pytest

goldens: $(VENV)/.ready ## Write the goldens anew; read the difference before committing it.
	$(BIN)/python -m pytest tests/golden --update-goldens

lint: $(VENV)/.ready ## ruff and black over what is written by hand.
	$(BIN)/ruff check .
	$(BIN)/black --check --quiet codegen runtime tests benchmarks examples
	$(BIN)/opwright-codegen lint

bench: $(VENV)/.ready ## Time dispatch and generation against their peers.
	$(BIN)/python benchmarks/dispatch.py
	$(BIN)/python benchmarks/generation.py

example: $(VENV)/.ready ## Train with gradients aggregated over several processes.
	$(BIN)/python examples/gradient_aggregation.py

tpu: $(VENV)/.ready ## Compile programs for TPUs and renew the table in docs/tpu.md.
	$(BIN)/python examples/tpu_check.py --write

wheel: $(VENV)/.ready ## Build the wheel into dist/.
	$(BIN)/python -m build --wheel

clean: ## Remove the environment and everything built.
	rm -rf $(VENV) build dist
