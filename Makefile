# `make help` lists the targets; each does its own set-up in .venv on a fresh machine.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TORCH  := 2.13.0
# MindSpore needs an older numpy, so it has an environment of its own.
MINDSPORE_VENV := .venv-mindspore
MINDSPORE      := 2.10.0
# Tools of other people that read our files or write the same; what they need besides is named, because one of them asks for Jupyter.
PEERS_VENV := .venv-peers
PEERS      := HolisticTraceAnalysis==0.5.0 torch-tb-profiler==0.4.3 msprof-analyze==26.2.0
PEERS_NEED := 'pandas<3' plotly networkx pydot psutil pyyaml tensorboard tqdm 'setuptools<81'
# Trainers bring many packages; theirs lie in an environment of their own, on top of the torch in the first one.
FRAMEWORKS_VENV := .venv-frameworks
FRAMEWORKS      := transformers==5.22.* accelerate==1.15.* lightning==2.6.* 'ray[train]==2.60.*'
# Trackers, for `stepscope publish`: the small form of mlflow and what its database store needs.
TRACKERS_VENV := .venv-trackers
TRACKERS      := wandb==0.31.* mlflow-skinny==3.17.* sqlalchemy alembic
# What builds documents and packages, and checks workflows.
DOCS_VENV := .venv-docs
DOCS      := 'sphinx>=9' 'myst-parser>=5' 'furo>=2025.9' build hatchling check-jsonschema zizmor cyclonedx-bom ziglang auditwheel
CPP            := $(wildcard native/*/*.cpp native/*/*.h native/*/*/*.cpp native/*/*/*.h tests/aarch64/*.cpp tests/fuzz/*.cpp)

# The tests start hundreds of interpreters: each would compile the package anew where an environment forbids to keep bytecode.
export PYTHONDONTWRITEBYTECODE :=

# Unit tests write many small files: in memory, where there is room.
TEMPORARY := $(shell [ "$$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)" -gt 8000000 ] 2> /dev/null && echo /dev/shm)

.PHONY: help demo quick quick-tests test fuzz bless environments check fmt hooks sanitize soak verdict-proof cluster-proof diff-proof cross prometheus aarch64 news bench bench-wheel bench-formats bench-instructions docs web browser wheel wheels sbom site clean
.DEFAULT_GOAL := demo

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/core: pyproject.toml
	@echo "setting up $(VENV) (once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# The exact pin first, so that nothing pulls a newer (GPU) build.
$(VENV)/torch: $(VENV)/core
	@echo "installing torch $(TORCH) (once) ..."
	@$(BIN)/pip install --quiet --disable-pip-version-check torch==$(TORCH)
	@touch $@

# Compile the libraries ahead of their first use; without a compiler captures use torch's own profiler, and scripts the CPU.
$(VENV)/native: $(VENV)/torch $(wildcard native/observer/* native/codec/*)
	@echo "compiling the collector and the kernels of the analyser (once) ..."
	@$(BIN)/python -m stepscope.native.codec
	@$(BIN)/python -m stepscope.collect
	@touch $@

$(VENV)/simnpu: $(VENV)/torch $(wildcard native/simnpu/* native/simnpu/*/*)
	@echo "compiling the simulated NPU (once, one to two minutes) ..."
	@$(BIN)/python -m stepscope.simnpu
	@touch $@

# Python sources of real torch_npu packages, unpacked and never installed: the adapter for hardware is tested against them.
$(VENV)/torch_npu: $(VENV)/core tests/vendor/fetch.py
	@echo "downloading sources of torch_npu (once) ..."
	@if $(BIN)/python tests/vendor/fetch.py $@; then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must test the adapter for torch_npu; its sources could not be downloaded" >&2; exit 1; \
	else echo "the adapter for torch_npu is not tested against its sources"; fi

$(MINDSPORE_VENV)/ready: pyproject.toml
	@echo "setting up $(MINDSPORE_VENV) (once) ..."
	@test -x $(MINDSPORE_VENV)/bin/python || $(PYTHON) -m venv $(MINDSPORE_VENV)
	@if $(MINDSPORE_VENV)/bin/pip install --quiet --disable-pip-version-check mindspore==$(MINDSPORE) -e '.[mindspore]'; then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must run the MindSpore tests; MindSpore $(MINDSPORE) could not be installed" >&2; exit 1; \
	else rm -rf $(MINDSPORE_VENV); echo "MindSpore $(MINDSPORE) could not be installed; skipping its tests"; fi

$(PEERS_VENV)/ready: Makefile
	@echo "setting up $(PEERS_VENV) (once) ..."
	@test -x $(PEERS_VENV)/bin/python || $(PYTHON) -m venv $(PEERS_VENV)
	@if $(PEERS_VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps $(PEERS) \
	  && $(PEERS_VENV)/bin/pip install --quiet --disable-pip-version-check $(PEERS_NEED); then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must test our files with their tools; $(PEERS) could not be installed" >&2; exit 1; \
	else rm -rf $(PEERS_VENV); echo "$(PEERS) could not be installed; our files are not tested with them"; fi

demo: $(VENV)/native $(VENV)/simnpu ## find a slow data loader on simulated NPUs, predict what its fix saves, fix it, confirm it (default)
	@$(BIN)/python examples/demo.py

check: $(VENV)/core ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(CPP)
	$(BIN)/mypy

fmt: $(VENV)/core ## format Python and C++
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

hooks: $(VENV)/core ## check style and types of changed files before each commit
	$(BIN)/pre-commit install

quick: $(VENV)/core ## style, types and the fast unit tests that need no torch
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check quick-tests

quick-tests:
	PYTEST_DEBUG_TEMPROOT=$(TEMPORARY) $(BIN)/python -m pytest -n 2 -m "not slow" --without-torch --hypothesis-profile=quick tests/unit

$(FRAMEWORKS_VENV)/ready: $(VENV)/torch
	@echo "setting up $(FRAMEWORKS_VENV) (once) ..."
	@test -x $(FRAMEWORKS_VENV)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS_VENV)
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" $(CURDIR)/src > "$$($(FRAMEWORKS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@if $(FRAMEWORKS_VENV)/bin/pip install --quiet --disable-pip-version-check torch==$(TORCH) $(FRAMEWORKS); then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must run the tests of trainers; $(FRAMEWORKS) could not be installed" >&2; exit 1; \
	else rm -rf $(FRAMEWORKS_VENV); echo "$(FRAMEWORKS) could not be installed; skipping their tests"; fi

$(TRACKERS_VENV)/ready: $(VENV)/core
	@echo "setting up $(TRACKERS_VENV) (once) ..."
	@test -x $(TRACKERS_VENV)/bin/python || $(PYTHON) -m venv $(TRACKERS_VENV)
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" $(CURDIR)/src > "$$($(TRACKERS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@if $(TRACKERS_VENV)/bin/pip install --quiet --disable-pip-version-check $(TRACKERS); then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must run the tests of trackers; $(TRACKERS) could not be installed" >&2; exit 1; \
	else rm -rf $(TRACKERS_VENV); echo "$(TRACKERS) could not be installed; skipping their tests"; fi

$(DOCS_VENV)/ready: $(VENV)/core
	@echo "setting up $(DOCS_VENV) (once) ..."
	@test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv $(DOCS_VENV)
	@printf '%s\n' "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" $(CURDIR)/src > "$$($(DOCS_VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth"
	@if $(DOCS_VENV)/bin/pip install --quiet --disable-pip-version-check $(DOCS); then touch $@; \
	elif [ -n "$$CI" ]; then echo "CI must build documents and packages; $(DOCS) could not be installed" >&2; exit 1; \
	else rm -rf $(DOCS_VENV); echo "$(DOCS) could not be installed; documents and packages are not tested"; fi

# Side by side, since most of it waits for the network.
environments: $(VENV)/native $(VENV)/simnpu $(VENV)/torch_npu $(MINDSPORE_VENV)/ready $(PEERS_VENV)/ready $(FRAMEWORKS_VENV)/ready $(TRACKERS_VENV)/ready $(DOCS_VENV)/ready web/node_modules/.package-lock.json browser

# Two processes more than there are cores: one drives the browser and waits for it, and many tests wait for a process.
test: $(VENV)/core ## style, types and the whole test suite, with coverage
	@$(MAKE) --no-print-directory --jobs=4 check environments
	@$(MAKE) --no-print-directory cross prometheus
	@test ! -x web/node_modules/.bin/tsc || npm --prefix web run --silent types
	$(BIN)/python -m pytest -n $$(($$(nproc) + 2)) --dist loadfile --no-loadscope-reorder --cov --cov-report=

# Longer: `make fuzz SECONDS=3600`; the corpora stay in fuzz-corpus/ and are used again.
SECONDS ?= 120
fuzz: $(VENV)/core ## fuzz all readers with coverage guidance for two minutes, and the C++ kernels with a million inputs each
	$(BIN)/python tests/fuzz/run_codec.py
	@$(BIN)/python -c "import atheris" 2> /dev/null || $(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS) $(ARGS)

bless: $(VENV)/core ## accept the current results as the expected ones of tests/captures; then read the diff
	$(BIN)/python tests/captures/bless.py $(ARGS)

# The page; its build is committed, so that users need no Node.
web: web/node_modules/.package-lock.json ## rebuild the page into src/stepscope/web/static
	cd web && npm run build

web/node_modules/.package-lock.json: web/package-lock.json
	@if command -v npm > /dev/null; then cd web && npm ci --no-progress && touch node_modules/.package-lock.json; \
	elif [ -n "$$CI" ]; then echo "CI must rebuild the page; install Node 20 with npm" >&2; exit 1; \
	else echo "npm is not installed; the page is not rebuilt"; fi

# The browser tests drive Debian's Chromium.
browser:
	@command -v chromium > /dev/null && command -v chromedriver > /dev/null || { \
	  echo "installing chromium (once) ..."; \
	  [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null; \
	  } || [ -z "$$CI" ] || { echo "CI must run the browser tests; install chromium and chromium-driver" >&2; exit 1; }

# Most machines with NPUs are aarch64: the tests compile the observer for it.
cross:
	@command -v aarch64-linux-gnu-g++ > /dev/null || { \
	  echo "installing the compiler for aarch64 (once) ..."; \
	  [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu > /dev/null; \
	  } || [ -z "$$CI" ] || { echo "CI must cross-compile; install g++-aarch64-linux-gnu" >&2; exit 1; }

# The dashboard and the alerts of `stepscope watch` are tried with Debian's Prometheus; its service is not started.
prometheus:
	@command -v prometheus > /dev/null && command -v promtool > /dev/null || { \
	  echo "installing prometheus (once) ..."; \
	  [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends prometheus > /dev/null; \
	  } || [ -z "$$CI" ] || { echo "CI must test dashboard and alerts; install prometheus" >&2; exit 1; }

aarch64: $(VENV)/torch cross ## build the native libraries for aarch64 and run one under emulation (qemu-user; downloads 430 MB)
	$(BIN)/python tests/aarch64/run.py $(VENV)/aarch64

# Needs gcc with its sanitizers; the libraries are built into a separate cache.
sanitize: $(VENV)/native $(VENV)/simnpu ## test the native libraries with ASan and UBSan, then with TSan
	$(BIN)/python tests/sanitizers/run.py address thread

soak: $(VENV)/native $(VENV)/simnpu ## long stresses: forks, kills, many captures, every place of a damage; options in ARGS
	STEPSCOPE_THOROUGH=1 $(BIN)/python -m pytest -n auto --dist loadfile tests/faults tests/cluster tests/golden/diff tests/golden/export tests/packages tests/docs tests/unit/formats/framework
	$(BIN)/python tests/soak/run.py $(ARGS)

verdict-proof: $(VENV)/torch ## how well the rules find simulated problems, and predict what they cost
	$(BIN)/python tests/verdict/proof.py
	$(BIN)/python tests/verdict/npu_proof.py

cluster-proof: $(VENV)/core ## how well faults of simulated clusters are found, and what they cost is told
	$(BIN)/python tests/cluster/proof.py $(ARGS)

diff-proof: $(VENV)/core ## how often a diff names an injected change first, and stays silent about equal runs
	$(BIN)/python tests/diff/diff_proof.py $(ARGS)

# An installed wheel, as users have it: bytecode compiled, the kernels inside; made anew from the sources each time.
BENCH_VENV := .venv-bench
bench-wheel: $(VENV)/core
	@rm -rf src/stepscope/native/prebuilt dist/bench
	@$(BIN)/python -m stepscope.native.codec --into src/stepscope/native/prebuilt
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/bench .; made=$$?; rm -rf src/stepscope/native/prebuilt; exit $$made
	@test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv $(BENCH_VENV)
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check dist/bench/*.whl
	@$(BENCH_VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/bench/*.whl

# The reference analyser comes with the torch-npu wheel, whose Python files are unpacked and never installed ($(VENV)/torch_npu).
# GENERATOR writes captures that hold the files of msprof, which the reference needs.
GENERATOR ?= ../shared/tools/gen_framework_raw.py
bench: bench-wheel $(VENV)/torch_npu ## time and memory by size of the capture, beside the reference analyser; options in ARGS
	PYTHONPATH=. $(BIN)/python -m benchmarks.analysis.sizes --python $(BENCH_VENV)/bin/python --reference $(VENV)/torch_npu/2.13.0 --generator $(GENERATOR) $(ARGS)

bench-instructions: $(VENV)/native ## instructions that recording adds to each operator, counted by valgrind; options in ARGS
	PYTHONPATH=. $(BIN)/python -m benchmarks.analysis.instructions $(ARGS)

bench-formats: $(VENV)/core ## time and memory of other formats and tools on generated captures; options in ARGS
	PYTHONPATH=. $(BIN)/python -m benchmarks.run $(ARGS)

# For this kind of machine and torch $(TORCH); with other versions of torch the wheel compiles its sources on first use.
wheel: $(VENV)/native $(VENV)/simnpu ## build a wheel with the compiled libraries, in dist/
	@rm -rf src/stepscope/native/prebuilt
	@$(BIN)/python -m stepscope.native.codec --into src/stepscope/native/prebuilt
	@$(BIN)/python -m stepscope.collect --into src/stepscope/native/prebuilt
	@$(BIN)/python -m stepscope.simnpu --into src/stepscope/native/prebuilt
	@$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .
	@rm -rf src/stepscope/native/prebuilt
	@ls dist

# What is in a release, for those who must know: of the wheel and what it needs, nothing else.
wheels: $(DOCS_VENV)/ready $(VENV)/torch ## build wheels for manylinux_2_28, x86_64 and aarch64, with the compiled libraries, in dist/
	PYTHON=$(CURDIR)/$(DOCS_VENV)/bin/python TORCH_PYTHON=$(CURDIR)/$(BIN)/python \
	  TORCH_AARCH64=$(realpath $(VENV)/aarch64/torch/lib) packaging/portable_wheels.sh dist

sbom: $(DOCS_VENV)/ready ## list everything that an installation contains (CycloneDX), in dist/
	@rm -rf build/sbom && $(PYTHON) -m venv --without-pip build/sbom
	@$(BIN)/pip --python build/sbom/bin/python install --quiet --disable-pip-version-check .
	@mkdir -p dist
	$(DOCS_VENV)/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible --of JSON -o dist/stepscope.cdx.json build/sbom/bin/python

site: $(DOCS_VENV)/ready docs ## build the documentation site into build/site, offline, with warnings as errors
	$(DOCS_VENV)/bin/python -m sphinx -q -W --keep-going -b html docs build/site

docs: $(VENV)/core ## generate the reference pages from the code
	$(BIN)/python -m stepscope.tables.reference > docs/tables.md
	$(BIN)/python -m stepscope.tables.issue_reference > docs/issues.md
	$(BIN)/python -m stepscope.query.reference > docs/views.md
	$(BIN)/python -m stepscope.formats.cann.chip_reference > docs/formats/chips.md
	$(BIN)/python docs/chinese_pages.py
	$(BIN)/python docs/rule_pages.py
	$(BIN)/python docs/reference_pages.py

news: $(VENV)/core ## show the changes since the last release
	$(BIN)/towncrier build --draft --version next

clean: ## remove environments and generated data
	rm -rf $(VENV) $(MINDSPORE_VENV) $(PEERS_VENV) $(FRAMEWORKS_VENV) $(TRACKERS_VENV) $(DOCS_VENV) $(BENCH_VENV) build demo-run bench-data web/node_modules
