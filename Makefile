# The virtual environment that every target works in.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Compilers at once.
JOBS ?= 2
# CUDA=ON builds kernels for GPUs into the native library, which takes nvcc.
CUDA ?= OFF
# Nobody wants TensorFlow's greeting in front of every result.
export TF_CPP_MIN_LOG_LEVEL ?= 2

.DEFAULT_GOAL := help
.PHONY: help ops check test native test-native docs fuzz sanitize tpu test-tpu goldens lint
.PHONY: bench bench-bindings bench-embedding bench-native example two-tower wheel clean

help: ## Say what can be made.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Rebuilt when the dependencies change; half an environment never counts as one.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[codegen]" --group dev
	@touch $@

ops: $(VENV)/.ready ## Regenerate every class from opdefs/.
	$(BIN)/opwright-codegen generate

check: $(VENV)/.ready ## Fail if generated/ is not what opdefs/ say.
	$(BIN)/opwright-codegen generate --check

test: native $(VENV)/.tpu ## Build the native kernels and run every test.
	$(BIN)/python -m pytest

# What only the native kernels need: a build system, and torch to compare with.
$(VENV)/.native: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group native
	@touch $@

native: $(VENV)/.native ## Build the native kernels against the TensorFlow in the environment; CUDA=ON for GPUs too.
	$(BIN)/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python -DOPWRIGHT_CUDA=$(CUDA) >/dev/null
	$(BIN)/cmake --build build/native --parallel $(JOBS)

test-native: native ## Run the tests of the native kernels.
	$(BIN)/python -m pytest tests/native tests/embedding

docs: native ## Renew the tables in docs/embedding.md.
	$(BIN)/python docs/embedding_tables.py

# The last line is the result; what stops the fuzzer must stop make.
fuzz: SHELL := bash
fuzz: .SHELLFLAGS := -o pipefail -c
fuzz: native ## Call the native ops with 10,000 kinds of wrong arguments.
	$(BIN)/python tests/native/fuzz.py 10000 | tail -1
	$(BIN)/python tests/native/fuzz.py --xla 500 | tail -1
	$(BIN)/python tests/native/sparse_core_fuzz.py 10000 | tail -1
	$(BIN)/python tests/native/embedding_fuzz.py 10000 | tail -1

sanitize: $(VENV)/.native ## Run the native tests under ASan, UBSan and TSan.
	for which in address,undefined thread; do \
		folder=build/sanitize-$${which%%,*}; \
		$(BIN)/cmake -S . -B $$folder -G Ninja -DOPWRIGHT_TENSORFLOW=OFF \
			-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
			-DOPWRIGHT_SANITIZE=$$which >/dev/null && \
		$(BIN)/cmake --build $$folder --parallel $(JOBS) \
			--target core_test --target embedding_core_test \
			--target sparse_core_test && \
		$$folder/core_test 60 && $$folder/embedding_core_test 60 && \
		$$folder/sparse_core_test 30 || exit 1; \
	done

goldens: $(VENV)/.ready ## Write the goldens anew; read the difference before committing it.
	$(BIN)/python -m pytest tests/golden --update-goldens

lint: $(VENV)/.ready ## ruff and black over what is written by hand.
	$(BIN)/ruff check .
	$(BIN)/black --check --quiet codegen runtime tests benchmarks examples docs
	$(BIN)/opwright-codegen lint

bench: bench-bindings bench-native bench-embedding ## Time everything against its peers.

bench-bindings: $(VENV)/.ready ## Time dispatch and generation.
	$(BIN)/python benchmarks/dispatch.py
	$(BIN)/python benchmarks/generation.py

# A peer of the embeddings that nothing else needs.
$(VENV)/.bench: $(VENV)/.native
	$(BIN)/python -m pip install --quiet --group bench
	@touch $@

bench-embedding: native $(VENV)/.bench ## Time TPU embeddings against FBGEMM, torch and TensorFlow.
	$(BIN)/python benchmarks/embedding.py

bench-native: native ## Time the RNN kernels: against torch and Keras, with many callers.
	$(BIN)/python benchmarks/rnn.py
	$(BIN)/python benchmarks/rnn_callers.py

example: $(VENV)/.ready ## Train with gradients aggregated over several processes.
	$(BIN)/python examples/gradient_aggregation.py

two-tower: native ## Train a recommender with TPU embeddings, afresh.
	rm -rf build/two_tower
	$(BIN)/python examples/two_tower.py

$(VENV)/.tpu: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable ".[codegen,tpu]"
	@touch $@

test-tpu: $(VENV)/.tpu native ## Run the tests of the TPU check.
	$(BIN)/python -m pytest tests/tpu

tpu: $(VENV)/.tpu native ## Compile programs for TPUs and renew the tables in docs/tpu.md.
	$(BIN)/python examples/tpu_check.py --write

wheel: $(VENV)/.ready ## Build the wheel into dist/.
	$(BIN)/python -m build --wheel

clean: ## Remove the environment and everything built.
	rm -rf $(VENV) build dist runtime/opwright_runtime/_lib
