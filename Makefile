# The virtual environment that every target works in.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
# Compilers at once.
JOBS ?= 2
# Tests at once: some wait for other processes, and leave their core to one more.
WORKERS ?= $(shell expr $(JOBS) + 1)
# The processor that libraries and wheels are for: this machine's, or aarch64 by a cross compiler.
HERE := $(shell uname -m)
MACHINE ?= $(HERE)
# CUDA=ON builds kernels for GPUs into the native library, which takes nvcc.
CUDA ?= OFF
# Processes of an example, and how many are killed in a test of them.
HOSTS ?= 1
KILLS ?= 100
# Tests start hundreds of processes, each of which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# TensorFlow logs its start-up in front of every result.
export TF_CPP_MIN_LOG_LEVEL ?= 2

# A file's tests follow each other, which share what they are made with.
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=30

# What a tier prints last: the seconds since packages were installed.
BEGIN = $(eval BEGAN := $(shell date +%s))
TOOK = @echo "==== make $@: passed in $$(($$(date +%s) - $(BEGAN))) s, without installations"

.DEFAULT_GOAL := help
.PHONY: help ops check types unit test test-extended test-all native test-cc test-aarch64 test-native docs site test-site tf-names tpu-ops fuzz fuzz-diagnosis fuzz-models fuzz-ops fuzz-core fuzz-sanitized sanitize sanitize-adapter tpu test-tpu goldens lint
.PHONY: bench bench-bindings bench-embedding bench-kernels bench-native bench-results example custom-op two-tower wheel sdist
.PHONY: test-hosts bench-hosts test-versions needs-aarch64 release-check clean

help: ## Say what can be made.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Rebuilt when the dependencies change; half an environment never counts as one.
$(VENV)/.ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable ".[codegen]" --group dev
	@touch $@

ops: $(VENV)/.ready ## Regenerate every class from opdefs/, and count them.
	$(BIN)/opwright-codegen generate
	$(BIN)/python tools/facts.py

check: $(VENV)/.ready ## Fail if generated/ is not what opdefs/ say.
	$(BIN)/opwright-codegen generate --check

# The markers of tests/support/tiers.py, which says why `test` leaves their tests out.
EXTENDED := compile_tpu or convert or cuda or endurance or equivalence or full_matrix or hosts or libraries or notebooks or process_ends or project or wheel

types: $(VENV)/.native ## Check types with mypy and pyright: packages, examples and documents.
	$(BIN)/python -m pytest -m typing tests/generated/test_typing.py \
		tests/generated/test_typed_values.py tests/reference/test_examples.py tests/test_pictures.py

unit: WORKERS = $(JOBS)
unit: $(VENV)/.ready ## Run the tests that take no native library and no seconds: one minute.
	$(BEGIN)
	OPWRIGHT_FUZZ=5 $(PYTEST) -m "not (slow or rotating or style or typing or $(EXTENDED))" \
		tests/codegen tests/golden tests/runtime tests/test_*.py
	$(TOOK)

test: $(VENV)/.tpu test-cc ## Build the native kernels and test all that a change can break: ten minutes.
	$(PYTEST) --tenth -m "not (site or style or typing or $(EXTENDED))"
	$(TOOK)

# What writes ONNX and TFLite files.
$(VENV)/.convert: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group convert
	@touch $@

# What runs the notebooks of examples/.
$(VENV)/.notebooks: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group notebooks
	@touch $@

test-extended: $(VENV)/.tpu $(VENV)/.convert $(VENV)/.notebooks test-cc ## Run what `test` leaves out or runs in part.
	$(BIN)/cmake --build build/native --parallel $(JOBS) --target cuda_tests
	$(BIN)/ctest --test-dir build/native --parallel $(JOBS) --output-on-failure --label-regex cuda
	OPWRIGHT_FULL=1 $(PYTEST) -m "$(EXTENDED) or partial or rotating"
	$(TOOK)

test-all: test-aarch64 types test-extended test-site test-versions ## Run what `test` leaves out, a browser, every TensorFlow and aarch64.

# What only the native kernels need: a build system, and torch to compare with.
$(VENV)/.native: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group native
	@touch $@

BUILT = all
native: $(VENV)/.native ## Build the native kernels against the TensorFlow in the environment; CUDA=ON for GPUs too.
	$(BEGIN)
	$(BIN)/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python -DOPWRIGHT_CUDA=$(CUDA) >/dev/null
	$(BIN)/cmake --build build/native --parallel $(JOBS) --target $(BUILT)

# Built with the library, or one processor would be idle while the other links it.
test-cc: BUILT += unit_tests
test-cc: native ## Run the tests in C++.
	$(BIN)/cmake --build build/native --parallel $(JOBS) --target unit_tests
	$(BIN)/ctest --test-dir build/native --parallel $(JOBS) --output-on-failure --label-exclude cuda

ifeq ($(HERE),aarch64)
test-aarch64: test-cc
else
test-aarch64: needs-aarch64 $(VENV)/.native ## Run the tests in C++ for aarch64 in an emulator, with NEON and without.
	$(BIN)/cmake -S . -B build/aarch64/tests -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		--toolchain cmake/aarch64-linux-gnu.cmake -DOPWRIGHT_TENSORFLOW=OFF >/dev/null
	$(BIN)/cmake --build build/aarch64/tests --parallel $(JOBS) --target unit_tests
	for isa in neon portable; do \
		OPWRIGHT_ISA=$$isa $(BIN)/ctest --test-dir build/aarch64/tests --parallel $(JOBS) \
			--output-on-failure --label-exclude cuda || exit 1; \
	done
endif

needs-aarch64:
	@for tool in aarch64-linux-gnu-g++ qemu-aarch64-static; do \
		command -v $$tool >/dev/null || { \
			echo "there is no $$tool: install Debian's packages g++-aarch64-linux-gnu and qemu-user-static" >&2; \
			exit 1; }; \
	done

test-native: test-cc ## Run the tests of the native kernels.
	$(PYTEST) tests/native tests/rnn tests/embedding tests/sparsecore tests/xla_ops

docs: native ## Renew the generated tables in docs/reference.
	$(BIN)/python docs/embedding_tables.py
	$(BIN)/python docs/tpu_remedies.py
	PYTHONPATH=tests $(BIN)/python docs/process_ends.py
	$(BIN)/python tools/facts.py

$(VENV)/.site: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group site
	@touch $@

site: $(VENV)/.site ## Build the site with Sphinx, a page an op, into build/site.
	$(BIN)/python -m sphinx -W --keep-going -j $(JOBS) -d build/site-doctrees docs build/site

$(VENV)/.browser: $(VENV)/.site
	$(BIN)/python -m pip install --quiet --group browser
	@touch $@

test-site: site $(VENV)/.browser ## Test the site in a real Chromium; it says how to get one.
	OPWRIGHT_SITE=build/site $(BIN)/python -m pytest tests/docs_site/test_site.py tests/docs_site/browser.py

tf-names: $(VENV)/.ready ## Renew the table of what TensorFlow's public functions call.
	$(BIN)/python tools/tf_names.py

CLANG ?= clang++-14
# How many calls the fuzzer makes; a tenth under sanitizers, which take ten times as long.
CALLS ?= 100000
FUZZ := PYTHONPATH=tests $(BIN)/python -m fuzz --jobs $(JOBS) --corpus tests/fuzz/corpus \
	$(if $(FAMILIES),--families $(FAMILIES)) --

fuzz: native ## Make 100,000 good and bad calls of all native ops; CALLS=2000, FAMILIES=rnn for less.
	$(FUZZ) $(CALLS)

SEED ?= 0
fuzz-diagnosis: native ## Bend the arguments of 100,000 calls, and judge what errors say.
	PYTHONPATH=tests $(BIN)/python -m fuzz.diagnosis --jobs $(JOBS) --seed $(SEED) $(CALLS)

MODELS ?= 5000
fuzz-models: native $(VENV)/.convert ## Convert 5,000 damaged models; MODELS=500 for less.
	PYTHONPATH=tests $(BIN)/python -m fuzz.models --seed $(SEED) $(MODELS)

# SIDE=raw calls TensorFlow's own wrappers instead of opwright.
# There are a thousand ops and some, so each is called CALLS / 1000 times.
SIDE ?= opwright
fuzz-ops: native ## Bend 100,000 calls of all ops of TensorFlow, and find those that end the process.
	PYTHONPATH=tests $(BIN)/python -m fuzz.ops --jobs $(JOBS) --seed $(SEED) --side $(SIDE) \
		--calls $$(($(CALLS) / 1000))

SANITIZED := build/sanitize-library
fuzz-sanitized: $(VENV)/.native ## The same, 10,000, of a library built with ASan and UBSan.
	$(BIN)/cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python -DOPWRIGHT_SANITIZE=address,undefined \
		-DOPWRIGHT_LIBRARY_DIR=$(abspath $(SANITIZED))/lib >/dev/null
	$(BIN)/cmake --build $(SANITIZED) --parallel $(JOBS) --target opwright
	OPWRIGHT_LIBRARY="$$(ls -t $(abspath $(SANITIZED))/lib/*/libopwright.so | head -1)" \
	FUZZ_PRELOAD="$$(for one in asan ubsan stdc++; do c++ -print-file-name=lib$$one.so; done)" \
		$(FUZZ) $$(($(CALLS) / 10))

CORE_FUZZ := build/fuzz-core
fuzz-core: $(VENV)/.native ## Let libFuzzer, which takes clang, at core for a minute.
	$(BIN)/cmake -S . -B $(CORE_FUZZ) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DCMAKE_CXX_COMPILER=$(CLANG) -DOPWRIGHT_TENSORFLOW=OFF \
		-DOPWRIGHT_SANITIZE=address,undefined,fuzzer-no-link >/dev/null
	$(BIN)/cmake --build $(CORE_FUZZ) --parallel $(JOBS) --target core_fuzz
	mkdir -p $(CORE_FUZZ)/corpus
	ASAN_OPTIONS=allocator_may_return_null=1 $(CORE_FUZZ)/core_fuzz $(CORE_FUZZ)/corpus \
		tests/fuzz/core_corpus -max_total_time=60 -artifact_prefix=$(CORE_FUZZ)/

sanitize: $(VENV)/.native ## Run the tests in C++ under ASan, UBSan and TSan.
	for which in address,undefined thread; do \
		folder=build/sanitize-$${which%%,*}; \
		$(BIN)/cmake -S . -B $$folder -G Ninja -DOPWRIGHT_TENSORFLOW=OFF \
			-DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
			-DOPWRIGHT_SANITIZE=$$which >/dev/null && \
		$(BIN)/cmake --build $$folder --parallel $(JOBS) \
			--target unit_tests cuda_tests && \
		for test in $$folder/*_test; do $$test --rounds 20 || exit 1; done || exit 1; \
	done

# Of 12,000 steps each, some 400 a second on two cores.
ROUNDS ?= 8
ADAPTER := build/sanitize-adapter
sanitize-adapter: $(VENV)/.native ## Run the TPU-embedding kernels under TSan, some 100,000 steps; ROUNDS=1 for less.
	$(BIN)/cmake -S . -B $(ADAPTER) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		-DPython3_EXECUTABLE=$(abspath $(BIN))/python -DOPWRIGHT_SANITIZE=thread \
		-DOPWRIGHT_LIBRARY_DIR=$(abspath $(ADAPTER))/lib >/dev/null
	$(BIN)/cmake --build $(ADAPTER) --parallel $(JOBS) --target adapter_test
	TSAN_OPTIONS=suppressions=runtime/native/embedding/tf/adapter_suppressions.txt:halt_on_error=1 \
		$(ADAPTER)/adapter_test --rounds $(ROUNDS)

goldens: $(VENV)/.ready ## Write the goldens anew; read the difference before committing it.
	$(BIN)/python -m pytest tests/golden --update-goldens

CC_SOURCES := git ls-files 'runtime/native/*' 'tests/*' 'benchmarks/*' | grep -E '\.(h|cc|cu)$$'
lint: $(VENV)/.ready ## ruff, black, clang-format and the project's own rules over what is written by hand.
	$(BIN)/ruff check .
	$(BIN)/black --check --quiet codegen runtime tests tools benchmarks examples docs
	$(BIN)/opwright-codegen lint
	$(BIN)/python tools/style.py
	$(BIN)/python -m pytest --quiet -m style tests/test_shape.py tests/test_sources.py tests/test_style.py
	$(CC_SOURCES) | xargs $(BIN)/clang-format --dry-run -Werror

bench: bench-bindings bench-native bench-embedding ## Time everything against its peers.

bench-bindings: $(VENV)/.ready ## Time dispatch, conditions of ops, and generation.
	$(BIN)/python benchmarks/dispatch.py
	$(BIN)/python benchmarks/conditions.py
	$(BIN)/python benchmarks/generation.py

# Peers of the embeddings, which nothing else needs; torchrec without the FBGEMM for CUDA.
$(VENV)/.bench: $(VENV)/.native
	$(BIN)/python -m pip install --quiet --group bench
	$(BIN)/python -m pip install --quiet --no-deps torchrec==1.8.0
	@touch $@

bench-embedding: native $(VENV)/.bench ## Time TPU embeddings, and programs with them, against their peers.
	$(BIN)/python benchmarks/embedding.py
	$(BIN)/python benchmarks/embedding_narrow.py
	$(BIN)/python benchmarks/embedding_training.py
	$(BIN)/python benchmarks/embedding_cores.py

bench-kernels: native ## Time lookups and updates of tables without TensorFlow, and the memory that bounds them.
	$(BIN)/cmake --build build/native --parallel $(JOBS) --target embedding_kernels
	build/native/embedding_kernels

bench-hosts: native $(VENV)/.bench ## Count what steps send between processes that share embedding tables, and time them against peers.
	$(BIN)/python benchmarks/embedding_hosts.py --check

bench-native: native ## Time the RNN kernels and opwright.keras: against torch and Keras, with many callers.
	$(BIN)/python benchmarks/rnn.py
	$(BIN)/python benchmarks/keras_layers.py
	$(BIN)/python benchmarks/keras_model.py
	$(BIN)/python benchmarks/rnn_callers.py

bench-results: native $(VENV)/.bench ## Record the results that benchmarks/report.py makes pages of, on an idle machine.
	$(BIN)/python benchmarks/dispatch.py --record
	$(BIN)/python benchmarks/rnn.py --shapes ACDEFGH --seconds 3 --record
	$(BIN)/python benchmarks/keras_layers.py --shapes ACDEFGH --seconds 3 --record
	$(BIN)/python benchmarks/keras_model.py --record
	$(BIN)/python benchmarks/embedding.py --seconds 6 --record
	$(BIN)/python benchmarks/embedding_narrow.py --dims 64 128 --record
	$(BIN)/python benchmarks/embedding_training.py --record
	$(BIN)/python benchmarks/embedding_cores.py --rounds 7 --record
	$(BIN)/python benchmarks/embedding_hosts.py --rounds 1 --record

example: $(VENV)/.ready ## Train with gradients aggregated over several processes.
	$(BIN)/python examples/gradient_aggregation.py

custom-op: $(VENV)/.native ## Build and test the project of an op of one's own in examples/custom_op.
	PATH="$(abspath $(BIN)):$$PATH" $(MAKE) -C examples/custom_op PYTHON=$(abspath $(BIN))/python

two-tower: native ## Train a recommender with TPU embeddings, afresh; on several processes with HOSTS=4.
	rm -rf build/two_tower
	$(BIN)/python examples/two_tower.py --hosts $(HOSTS)

test-hosts: native ## Kill processes that share embedding tables, 100 (KILLS), at random moments.
	OPWRIGHT_KILLS=$(KILLS) $(PYTEST) tests/embedding/test_hosts.py -k killed_at_random

$(VENV)/.tpu: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --editable ".[codegen,tpu]"
	@touch $@

test-tpu: $(VENV)/.tpu native ## Run the tests of the TPU check.
	$(PYTEST) tests/tpu

tpu: $(VENV)/.tpu native ## Compile programs for TPUs and renew the tables in docs/reference/tpu_check.md.
	$(BIN)/python examples/tpu_check.py --write

tpu-ops: $(VENV)/.tpu native ## Try where each op compiles, XLA and every TPU, and renew the table.
	$(BIN)/python tools/tpu_ops.py --jobs $(JOBS)

# Of each TensorFlow an environment, and the native library built against it. A new
# TensorFlow may have no tf_keras of its version, and the one before refuses it: --no-deps.
VERSIONS ?= 2.18 2.19 2.20 2.21 2.22
ENVIRONMENTS ?= build/environments
.PRECIOUS: $(ENVIRONMENTS)/%/.ready
$(ENVIRONMENTS)/%/.ready: pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(@D)/bin/python -m pip install --quiet --editable ".[codegen]" --group smoke \
		"tensorflow==$*.*"
	$(@D)/bin/python -m pip install --quiet --no-deps "tf_keras<=$*.99"
	@touch $@

ifeq ($(MACHINE),$(HERE))
FOR := build/for-
TENSORFLOW := $(ENVIRONMENTS)/%/.ready
TENSORFLOW_IS = -DPython3_EXECUTABLE=$(abspath $(ENVIRONMENTS)/$*/bin/python)
else
# Of a TensorFlow for another processor only the wheel, which nothing here can import.
FOR := build/$(MACHINE)/for-
TENSORFLOW := needs-$(MACHINE) build/$(MACHINE)/tensorflow-%/.ready
TENSORFLOW_IS = --toolchain cmake/$(MACHINE)-linux-gnu.cmake \
	-DTENSORFLOW_WHEEL=$(abspath build/$(MACHINE)/tensorflow-$*)
.PRECIOUS: build/$(MACHINE)/tensorflow-%/.ready
build/$(MACHINE)/tensorflow-%/.ready: | $(VENV)/.ready
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-compile --no-deps --only-binary :all: --target $(@D) \
		--python-version 3.11 --platform manylinux_2_27_$(MACHINE) \
		--platform manylinux_2_17_$(MACHINE) "tensorflow==$*.*"
	@touch $@
endif

native-for-%: $(VENV)/.native $(TENSORFLOW)
	$(BIN)/cmake -S . -B $(FOR)$* -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
		$(TENSORFLOW_IS) -DOPWRIGHT_LIBRARY_DIR=$(abspath $(FOR)$*/lib) >/dev/null
	$(BIN)/cmake --build $(FOR)$* --parallel $(JOBS) --target opwright fast_path

# What other TensorFlows run of the tests: 100 ops, dtypes, and of RNNs and embeddings the numbers.
SMOKE := tests/versions tests/rnn/test_numbers.py tests/embedding/test_strategy.py
test-versions: $(VERSIONS:%=test-with-%) ## Run a smoke suite with TensorFlow 2.18 to 2.22, each in its own environment.
test-with-%: native-for-%
	OPWRIGHT_LIBRARY=$(abspath build/for-$*/lib/$*/libopwright.so) \
		$(ENVIRONMENTS)/$*/bin/python -m pytest -q -p no:cacheprovider $(SMOKE)

$(VENV)/.release: $(VENV)/.ready
	$(BIN)/python -m pip install --quiet --group release
	@touch $@

NATIVE ?= ON
ifeq ($(NATIVE),ON)
# auditwheel finds out which systems a wheel runs on, and names it so; TensorFlow brings its
# libraries itself.
wheel: $(VERSIONS:%=native-for-%) $(VENV)/.release ## Build the wheel for TensorFlow 2.18 to 2.22 into dist/; VERSIONS=2.21 for one, NATIVE=OFF for none, MACHINE=aarch64.
	$(BIN)/python tools/native_files.py build/native-files $(VERSIONS:%=$(FOR)%)
	rm -rf build/wheel
	OPWRIGHT_NATIVE=build/native-files $(BIN)/python -m build --wheel --outdir build/wheel
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist \
		--exclude "libtensorflow*" build/wheel/*.whl
else
wheel: $(VENV)/.ready
	OPWRIGHT_NATIVE= $(BIN)/python -m build --wheel
endif

sdist: $(VENV)/.ready ## Build the sdist into dist/.
	OPWRIGHT_NATIVE= $(BIN)/python -m build --sdist

release-check: $(VENV)/.release ## Check what dist/ holds: names, metadata, systems, programs on every Python there is.
	$(BIN)/python tools/release_check.py dist

clean: ## Remove the environment and everything built.
	rm -rf $(VENV) build dist docs/groups docs/ops runtime/opwright_runtime/_lib
