# Everything sets itself up: a virtual environment in .venv, the native modules built in place, a JVM where there is none.

PYTHON ?= python3
BIN := .venv/bin
NATIVE := $(wildcard src_c/*.h src_c/*.c kbatch/_native/*/*.pyx kbatch/_native/*/*.pxd)
# Spark's workers run the interpreter that the driver runs.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
# Hundreds of processes import the same modules: what is compiled is kept, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

# Worlds of `make simulate`, from:to.
SEEDS ?= 0:1000
# Four processes for two cores: half of their time goes by waiting for brokers, JVMs and Spark.
PYTEST := $(BIN)/python -m pytest -n 4 --dist loadfile
# Of `make wheels`: --version, --platform, --into, --compare; nothing means all of them.
WHEELS ?=
# Of `make bench`: groups, and --quick; nothing means all of them, in full.
BENCH ?=

.PHONY: help demo test test-slow test-all coverage simulate soak sanitize platforms wheels docs bench bench-compare bench-baseline lint format clean

help:
	@echo "make demo      336,776 real flights through Spark into segments and a broker and back, proven equal,"
	@echo "               exactly once though a task and a query are killed on the way;"
	@echo "               KAFKA=host:port takes a Kafka of yours instead of the embedded broker"
	@echo "make test      the tests but for the slow ones (some 8 minutes on two cores)"
	@echo "make test-slow what takes long: Spark, kills, campaigns, installs, second loops and versions, 960 more worlds"
	@echo "make test-all  both in one run, which starts brokers, JVMs and Spark once"
	@echo "make coverage  branches of kbatch that tests/unit covers, by file (some 7 minutes)"
	@echo "make simulate  the producer, groups of readers and process(), in 1,000 worlds each of virtual time and faults"
	@echo "               (SEEDS=0:1000)"
	@echo "make soak      the long campaigns in full, resumable, tests with lanes driven in Python, and"
	@echo "               properties with 1,000 examples; results go to docs/soak.md"
	@echo "make sanitize  the native modules under AddressSanitizer and UndefinedBehaviorSanitizer"
	@echo "make platforms the native modules, compiled for macOS, aarch64, musl and Windows by ziglang"
	@echo "make wheels    the source distribution, and wheels for every Python, x86_64 and aarch64, in dist/, each"
	@echo "               tried (WHEELS='--version 3.12 --platform x86_64': some of them)"
	@echo "make docs      the site of the documentation, in build/site; fails at a link that leads nowhere, or a public"
	@echo "               name without a text"
	@echo "make bench     kbatch beside its peers; results go to docs/benchmarks/ and docs/costs.md"
	@echo "               (BENCH='throughput latency --quick': some of the groups, and few records)"
	@echo "make bench-compare   what runs in one process beside its saved baseline; fails at 1.15 x"
	@echo "make bench-baseline  saves it"
	@echo "make lint      ruff, mypy, codespell and clang-format: faults, shape, types, spelling"
	@echo "make format    sorts imports, and shapes Python and C as lint wants them"

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit("kbatch needs Python 3.11 or newer; this is %d.%d: make PYTHON=python3.12" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	touch $@

.venv/ready: .venv/made pyproject.toml setup.py $(NATIVE)
	@# What it was called before; it would leave its entry points beside those of kbatch-kafka.
	@$(BIN)/pip uninstall --quiet --yes kbatch 2> /dev/null
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

.venv/jvm:
	.ci/install-jvm
	mkdir -p .venv && touch $@

# Kerberos, for the tests of GSSAPI; without root they are skipped.
.venv/kdc: .venv/ready
	.ci/install-kdc $(BIN)/python
	touch $@

demo: .venv/ready .venv/jvm
	$(BIN)/python docs/examples/flights.py

test: .venv/ready .venv/jvm .venv/kdc
	$(PYTEST) -m "not slow"

test-slow: .venv/ready .venv/jvm .venv/kdc
	KBATCH_WORLDS=40:300 $(PYTEST) -m "slow or worlds"

test-all: .venv/ready .venv/jvm .venv/kdc
	KBATCH_EXAMPLES=30 KBATCH_WORLDS=0:300 $(PYTEST)

coverage: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check 'coverage>=7.10'
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/coverage run -m pytest -q -n 2 --dist loadfile tests/unit; \
		status=$$?; $(BIN)/coverage combine -q; $(BIN)/coverage report; exit $$status

simulate: .venv/ready
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --readers --seeds $(SEEDS)
	$(BIN)/python -m tests.simulation --process --seeds $(SEEDS)

soak: .venv/ready .venv/jvm
	$(BIN)/python -m tests.fuzz.soak
	KBATCH_LONG=1 $(BIN)/python -m pytest tests/spark/test_spark_programs.py tests/spark/test_wheel.py \
		tests/spark/test_source.py::test_R104_pipeline_that_is_killed_at_each_step_is_exact \
		tests/integration/test_group_engine.py::test_R71_heartbeats_go_on_while_the_program_computes \
		tests/integration/test_package.py tests/integration/test_examples.py \
		tests/integration/test_bench.py::test_formats_have_a_figure_for_each_aim \
		tests/integration/test_admin_nodes.py::test_AS14_voters_change_while_controllers_die
	$(PYTEST) --lane=python tests/unit tests/integration
	KBATCH_EXAMPLES=1000 $(PYTEST) tests/property tests/unit/config tests/unit/core tests/unit/sasl \
		tests/integration/test_any_configuration.py

sanitize: .venv/ready
	.ci/sanitize

platforms: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check ziglang
	KBATCH_LONG=1 $(BIN)/python -m pytest -n 2 tests/integration/test_platforms.py

# Tools of exact versions, in an environment of their own.
build/release/ready: release/requirements.txt
	$(PYTHON) -m venv --clear build/release
	build/release/bin/pip install --quiet --disable-pip-version-check --requirement release/requirements.txt
	touch $@

wheels: build/release/ready
	build/release/bin/python -m release $(WHEELS)

docs: .venv/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

bench: .venv/ready .venv/jvm
	$(BIN)/python -m benchmarks $(BENCH)

# Rows of one process, judged by what they took when the baseline was saved.
IN_PROCESS := build/in-process.json
bench-compare bench-baseline: .venv/ready
	mkdir -p build
	$(BIN)/python -m pytest -q benchmarks --benchmark-json $(IN_PROCESS)
	$(BIN)/python -m benchmarks.compare $(if $(filter bench-baseline,$@),--save) $(IN_PROCESS)

C := $(wildcard src_c/*.h src_c/*.c)

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/clang-format --dry-run --Werror $(C)

format: .venv/ready
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C)

clean:
	rm -rf .venv build dist *.egg-info kbatch/_native/*.c kbatch/_native/*.so kbatch/_native/*/*.c kbatch/_native/*/*.so
