# fabmon: everything a person runs. Each target sets itself up on a fresh Debian or Ubuntu machine.
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
# Where it is set, each of the thousand processes that the tests start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

# The console needs 3.11; the first interpreter on the PATH that really is one wins.
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
# The node half runs on 3.6 and later (tests/unit/feeds/test_older_python.py); its own tests, which need
# packages, run on 3.9 too.
PYTHON39 ?= $(shell for p in python3.9 $$HOME/.pyenv/versions/3.9.*/bin/python3.9 pypy3; do \
  $$p -c 'import sys; sys.exit(sys.version_info[:2] != (3, 9))' 2>/dev/null && { echo $$p; break; }; done)
VENV39 := .venv39
# The tools that make packages and pages.
RELEASE := .venv-release
# What the broken jobs run in; pip's usual settings (PIP_INDEX_URL) say where from: the CPU wheel is enough.
CORPUS := .venv-corpus
# Packages are the same bytes whenever they are made: every time in them is that of the commit.
EPOCH = $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null || echo 1577836800))
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' collectors/__init__.py)

# What the lab, the tests against real daemons and login shells, and the benchmarks are made of.
SYSTEM_COMMANDS := ip:iproute2 tc:iproute2 ethtool:ethtool iperf3:iperf3 sshd:openssh-server \
  ssh:openssh-client tmux:tmux prometheus-node-exporter:prometheus-node-exporter \
  prometheus:prometheus promtool:prometheus \
  prometheus-alertmanager:prometheus-alertmanager victoria-metrics:victoria-metrics gcc:gcc \
  snmpd:snmpd snmpget:snmp redis-server:redis-server ibsim:ibsim-utils opensm:opensm \
  ibnetdiscover:infiniband-diags lldpd:lldpd chromium:chromium mpirun:openmpi-bin \
  mpicc:libopenmpi-dev ovs-vsctl:openvswitch-switch sfacctd:pmacct \
  slurmctld:slurmctld slurmd:slurmd squeue:slurm-client \
  /usr/bin/python3:python3 ksh:ksh zsh:zsh tcsh:tcsh fish:fish busybox:busybox \
  groff:groff-base man:man-db

# A file at a time for each worker, in the order of tests/conftest.py: what waits for minutes first.
BY_FILE := --dist loadfile --no-loadscope-reorder

CHECKSUMS = cd dist && rm -f SHA256SUMS && sha256sum * > SHA256SUMS && cat SHA256SUMS

# What installs the packages in make test-packages.
PACKAGE_COMMANDS := lintian:lintian mmdebstrap:mmdebstrap buildah:buildah

HEALTHY ?= 200
FAULTS ?= 400
HOURS ?= 24
RUNS ?= 3
BESIDE ?=
SCREENSHOTS ?= screenshots
ONLY ?=
BROKEN ?=
TARGETS ?=
SITE ?= build/site
FUZZ_S ?= 3600
SOAK_MIN ?= 60
SEED ?= 1000

.PHONY: help
help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

$(VENV)/.ready: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "fabmon needs Python 3.11 or newer on the PATH (apt install python3)"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  [ "$$(id -u)" = 0 ] && apt-get update -q && apt-get install -q -y python3-venv; } || { \
	  echo "python3-venv is missing: apt install python3-venv"; exit 1; }
	@echo "setting up $(VENV) with $(PYTHON); once, and again when the locked versions change" >&2
	@$(PYTHON) -m venv $(VENV)
	@echo "downloading and installing $$(grep -c == requirements.lock) packages, 500 MB: one to five minutes" >&2
	@$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements.lock >&2
	@echo "installing fabmon" >&2
	@$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . >&2
	@touch $@
	@echo "$(BIN)/fabmon is ready: $(BIN)/fabmon demo" >&2

$(VENV39)/.ready: requirements-node39.lock
	@if [ -n "$(PYTHON39)" ]; then $(PYTHON39) -m venv $(VENV39) && \
	  $(VENV39)/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-node39.lock && touch $@; fi

$(RELEASE)/.ready: requirements-release.lock $(VENV)/.ready
	@echo "setting up $(RELEASE): the tools that make packages and pages, a minute or two" >&2
	@$(PYTHON) -m venv $(RELEASE)
	@$(RELEASE)/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-release.lock >&2
	@touch $@

$(CORPUS)/.ready: tests/corpus/requirements.txt
	@echo "setting up $(CORPUS): PyTorch, 200 MB (CPU) or several GB (CUDA)" >&2
	@$(PYTHON) -m venv $(CORPUS)
	@$(CORPUS)/bin/pip install -q --disable-pip-version-check -r $< >&2
	@touch $@

.PHONY: setup
setup: $(VENV)/.ready ## the virtual environment, from the locked versions

.PHONY: system
system: # the system packages of the lab and of the tests against real daemons
	@missing=; for pair in $(SYSTEM_COMMANDS); do \
	  PATH=$$PATH:/usr/sbin:/sbin command -v $${pair%%:*} >/dev/null || missing="$$missing $${pair##*:}"; done; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d.fabmon && chmod +x /usr/sbin/policy-rc.d.fabmon; \
	    [ -e /usr/sbin/policy-rc.d ] || { mv /usr/sbin/policy-rc.d.fabmon /usr/sbin/policy-rc.d; ours=1; }; \
	    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $$missing; } >&2; code=$$?; \
	    [ -z "$$ours" ] || rm -f /usr/sbin/policy-rc.d; rm -f /usr/sbin/policy-rc.d.fabmon; exit $$code; \
	  else echo "not root: what needs these packages is skipped:$$missing (apt install$$missing)" >&2; fi; fi

.PHONY: run
run: setup ## a simulated fabric with a guided first minute; HOSTS=hosts.txt for a real one
	@$(if $(HOSTS),$(BIN)/fabmon --hosts $(HOSTS),$(BIN)/fabmon demo)

.PHONY: lab
lab: setup system ## a leaf-spine fabric in network namespaces, with traffic, and fabmon on it
	@$(BIN)/python -m tests.lab

.PHONY: test
test: setup system $(VENV39)/.ready ## every test, four files at a time on two cores: half of the time they wait; then the lab, which waits for its traffic, two at a time
	$(BIN)/pytest -n 4 $(BY_FILE) --ignore tests/lab --ignore tests/packages $(PYTEST_ARGS)
	$(BIN)/pytest -n 2 $(BY_FILE) tests/lab $(PYTEST_ARGS)

.PHONY: test-packages
test-packages: SYSTEM_COMMANDS += $(PACKAGE_COMMANDS)
test-packages: setup system $(RELEASE)/.ready ## the packages, installed as people do: needs the package registries, and root
	$(BIN)/pytest tests/packages $(PYTEST_ARGS)

.PHONY: bench
bench: setup system ## the parts, as JSON lines and into docs/performance.md; 6 GB in TMPDIR, 20 minutes
	@{ $(BIN)/python -m tests.bench && $(BIN)/python -m tests.bench.shipped --ssh --nodes 200 --runs 1; } \
	  | tee parts.jsonl
	@$(BIN)/python -m tests.bench.table parts.jsonl; rm -f parts.jsonl

.PHONY: bench-shipped
bench-shipped: setup system ## fabmon as it is started, 256 and 1,024 agents: into docs/performance.md
	@for nodes in 256 1024; do $(BIN)/python -m tests.bench.shipped --nodes $$nodes --runs $(RUNS) || exit 1; done \
	  | tee shipped.jsonl
	@$(BIN)/python -m tests.bench.table shipped.jsonl; rm -f shipped.jsonl

.PHONY: bench-growth
bench-growth: setup system ## 16 nodes streamed to 10,000 from real servers: into docs/performance.md
	@{ for nodes in 16 64; do $(BIN)/python -m tests.bench.shipped --nodes $$nodes --runs 1 --seconds 30 || exit 1; done; \
	  for nodes in 1024 4096 10000; do for server in victoria-metrics prometheus; do \
	  $(BIN)/python -m tests.bench.growth --server $$server --nodes $$nodes || exit 1; done; done; } | tee growth.jsonl
	@$(BIN)/python -m tests.bench.table growth.jsonl; rm -f growth.jsonl

.PHONY: docs
docs: $(RELEASE)/.ready ## the documentation as static pages with search, in build/site (index.html)
	@rm -rf $(SITE)
	@PYTHONPATH=. SOURCE_DATE_EPOCH=$(EPOCH) $(RELEASE)/bin/sphinx-build -q -E -n -W --keep-going -b html \
	  -d build/site-cache -c release/site . $(SITE)
	@cp -r docs/pictures $(SITE)/docs/ && cp $(SITE)/README.html $(SITE)/index.html
	@echo "$(SITE)/index.html"

.PHONY: man
man: setup ## the manual pages, from the help, into build/man
	$(BIN)/python -m fabmon.cli.manual build/man

.PHONY: dist
dist: wheel sbom ## the wheel, the sdist, their components (SBOM) and checksums: dist/

.PHONY: wheel
wheel: setup # the wheel and the sdist
	@rm -f dist/fabmon-*.whl dist/fabmon-*.tar.gz
	@SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m hatchling build -d dist
	@$(CHECKSUMS)

.PHONY: sbom
sbom: wheel $(RELEASE)/.ready # what the wheel brings with it, with licences, as CycloneDX
	@rm -rf build/sbom && mkdir -p build/sbom && $(PYTHON) -m venv build/sbom/venv
	@build/sbom/venv/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-runtime.lock >&2
	@build/sbom/venv/bin/pip uninstall -q -y setuptools pip
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > build/sbom/pyproject.toml
	@SOURCE_DATE_EPOCH=$(EPOCH) $(RELEASE)/bin/cyclonedx-py environment build/sbom/venv/bin/python \
	  --pyproject build/sbom/pyproject.toml --output-reproducible -o dist/fabmon-$(VERSION).cdx.json
	@$(CHECKSUMS)

.PHONY: zipapp
zipapp: wheel ## fabmon in one file, with the wheels of TARGETS (all by default): dist/fabmon-VERSION.pyz
	@rm -rf build/wheels dist/fabmon-*.pyz
	@SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m release.zipapp dist/fabmon-$(VERSION)-*.whl \
	  dist/fabmon-$(VERSION).pyz $(TARGETS)
	@$(CHECKSUMS)

.PHONY: deb
deb: wheel ## a Debian package for this machine's Python, or TARGETS=cp313-aarch64: dist/
	@rm -rf build/wheels-deb dist/fabmon_*.deb
	@SOURCE_DATE_EPOCH=$(EPOCH) $(BIN)/python -m release.deb dist/fabmon-$(VERSION)-*.whl dist $(TARGETS)
	@$(CHECKSUMS)

.PHONY: image
image: deb ## an OCI image of the Debian package: dist/fabmon-VERSION-oci.tar (root, mmdebstrap, buildah)
	@SOURCE_DATE_EPOCH=$(EPOCH) release/image/make.sh dist/fabmon_*.deb dist/fabmon-$(VERSION)-oci.tar
	@$(CHECKSUMS)

.PHONY: soak
soak: setup system ## SOAK_MIN minutes with 256 nodes, 8 of which restart every 5 s: memory, files, delays
	@$(BIN)/python -m tests.bench.soak --minutes $(SOAK_MIN) | tee soak.jsonl
	@$(BIN)/python -m tests.bench.table soak.jsonl; rm -f soak.jsonl

.PHONY: fuzz
fuzz: setup ## crafted recordings, wire and logs, FUZZ_S seconds in all, from SEED on: each is read or refused
	FABMON_FUZZ_S=$(FUZZ_S) FABMON_FUZZ_SEED=$(SEED) $(BIN)/pytest -q -s tests/unit/recording/test_fuzz.py tests/unit/recording/test_intact.py \
	  tests/unit/feeds/test_wire_fuzz.py tests/unit/feeds/test_polled_fuzz.py \
	  tests/unit/feeds/test_stream_fuzz.py tests/unit/job_log/test_fuzz.py

.PHONY: score
score: setup ## how good the findings are, on random simulated fabrics: docs/score.md (BESIDE=COMMIT)
	@$(BIN)/python -m tests.score --healthy $(HEALTHY) --faults $(FAULTS) --hours $(HOURS) \
	  --first 10001 --out docs/score.md $(foreach each,$(BESIDE),--beside $(each))

.PHONY: score-packets
score-packets: setup ## the findings on the packet-level scenes in ../shared/scenes (ONLY=f_up,f_down)
	@$(BIN)/python -m tests.packets --list $(if $(ONLY),--only "$(ONLY)") \
	  $(foreach each,$(BESIDE),--beside $(each))

.PHONY: lab-scenarios
lab-scenarios: setup system ## what the findings say of the kernel's own fabric, RUNS times, as a table; more scenarios than make test
	@$(BIN)/python -m tests.lab.scenarios_table --runs $(RUNS)

.PHONY: corpus
corpus: setup system $(CORPUS)/.ready ## jobs of PyTorch broken on purpose: what they print, as fixtures (root, 25 minutes)
	@$(BIN)/python -m tests.corpus $(CORPUS) $(BROKEN)

.PHONY: new-source new-cause new-metric
new-source: setup ## the skeleton of a counter source, with its test: NAME=some_nic
new-cause: setup ## the skeleton of a detector, with its thresholds and test: NAME=slow_something
new-metric: setup ## the skeleton of a metric of the heatmap, with its test: NAME=some_errors
new-source new-cause new-metric:
	@$(BIN)/python -m tests.skeletons $(@:new-%=%) $(NAME)
	@$(BIN)/ruff check -q --fix . && $(BIN)/ruff format -q .
	@echo "what is to be filled in, and what remains: CONTRIBUTING.md"

.PHONY: check
check: setup ## formatting, lint, types, who may import whom
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: pictures
pictures: setup ## the pictures of the README and a cast of the demo: docs/pictures
	@$(BIN)/python -m tests.pictures readme docs/pictures

.PHONY: screenshots
screenshots: setup ## the overview at every size, theme and colour depth, as a page: screenshots/
	@$(BIN)/python -m tests.pictures matrix $(SCREENSHOTS) --only "$(ONLY)"

.PHONY: lock
lock: ## resolve the versions anew (needs uv); requirements-runtime.lock is what packages ship
	uv pip compile -q --upgrade --no-header --no-annotate --no-emit-index-url --generate-hashes \
	  --universal --python-version 3.11 pyproject.toml --group dev -o requirements.lock
	uv pip compile -q --no-header --no-annotate --no-emit-index-url --generate-hashes --universal \
	  --python-version 3.11 pyproject.toml -c requirements.lock -o requirements-runtime.lock
	uv pip compile -q --upgrade --no-header --no-annotate --no-emit-index-url --generate-hashes \
	  --universal --python-version 3.11 --group release -c requirements.lock -o requirements-release.lock
	uv pip compile -q --upgrade --no-header --no-annotate --no-emit-index-url --generate-hashes \
	  --universal --python-version 3.9 tests/unit/collectors/requirements.in -o requirements-node39.lock

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(VENV) $(VENV39) $(RELEASE) $(CORPUS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache dist build
