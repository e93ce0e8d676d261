"""Every knob of the service, from the environment, with its unit and default. A wrong value stops the start.

docs/settings.md lists them for operators; tests/test_docs.py holds the two together.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import quote

from capabilities.running.egress.addresses import allowed_host
from capabilities.running.mcp_client.server_addresses import EntriesRefused, read_entries
from toolhub.environment import Environment, are_fernet_keys, celery_broker_url, data_secret, database
from toolhub.probe import ALIVE_SECONDS, worker_file
from toolhub.refusal import refuse

BASE_DIR = Path(__file__).resolve().parent.parent
env = Environment()

# -- Where things are ------------------------------------------------------------------------------------------------

#: Folder for the database, secrets, workspaces and sockets of the embedded set-up.
DATA_DIR = Path(env.text("TOOLHUB_DATA_DIR", str(BASE_DIR / "var"))).expanduser().resolve()
#: `embedded` (one machine, defaults for everything) or `production` (refuses defaults that are not safe on a network).
TOOLHUB_ENV = env.choice("TOOLHUB_ENV", "embedded", ("embedded", "production"))
PRODUCTION = TOOLHUB_ENV == "production"
DEBUG = env.boolean("DEBUG", False)
#: TCP port and address of the web server.
PORT = env.integer("PORT", 8000, 1, 65535)
HOST = env.text("HOST", "127.0.0.1")
#: Host names that the browser and clients may use.
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", ["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS", [])
#: Whether a proxy in front ends TLS and sets X-Forwarded-Proto.
BEHIND_TLS_PROXY = env.boolean("TOOLHUB_BEHIND_TLS_PROXY", False)
#: Proxies of ours in front, one behind another: the client's address is what the outermost of them saw.
TOOLHUB_TRUSTED_PROXIES = env.integer("TOOLHUB_TRUSTED_PROXIES", 0, 0, 10) or int(BEHIND_TLS_PROXY)
#: Whether anybody may read the OpenAPI document and its page, without a login or a token.
TOOLHUB_OPEN_API_DOCS = env.boolean("TOOLHUB_OPEN_API_DOCS", False)

# -- Secrets: from the environment, else (embedded only) made once and kept in the data folder ------------------------

SECRET_KEY = env.text("SECRET_KEY", "") or data_secret(DATA_DIR, "secret_key", allowed=not PRODUCTION)
#: Fernet keys, comma-separated: the first encrypts, all decrypt.
TOOLHUB_FIELD_KEYS = env.words("TOOLHUB_FIELD_KEYS", []) or [
    data_secret(DATA_DIR, "field_key", allowed=not PRODUCTION, fernet=True)
]

env.refuse_if(not are_fernet_keys(TOOLHUB_FIELD_KEYS), "TOOLHUB_FIELD_KEYS must be Fernet keys, comma-separated.")

# -- Database --------------------------------------------------------------------------------------------------------

#: postgres://user:password@host:port/name, or sqlite:///path. Default: SQLite in the data folder.
DATABASE_URL = env.text("DATABASE_URL", f"sqlite:///{quote(str(DATA_DIR / 'toolhub.sqlite3'))}")
DATABASES: dict[str, dict[str, Any]] = {"default": database(DATABASE_URL)}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # The writers of a process queue for the write lock. IMMEDIATE takes it when a transaction begins, so a
    # read-then-write never fails to upgrade; FULL makes a commit survive the loss of power, which is what a 202
    # promises.
    DATABASES["default"]["ENGINE"] = "toolhub.embedded.sqlite3"
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 60,
        "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA temp_store=MEMORY;"
        "PRAGMA mmap_size=134217728;PRAGMA journal_size_limit=67108864;PRAGMA cache_size=-16000;",
    }
    # A thread of the web server keeps its connection: opening one reads the whole schema. PostgreSQL has a pool.
    DATABASES["default"]["CONN_MAX_AGE"] = 600
else:
    # A hundred turns that wait for their models must not hold a hundred connections: each borrows one for a statement
    # or a transaction. Results are read whole, so that no cursor of the server outlives its statement.
    DATABASES["default"]["ENGINE"] = "toolhub.postgresql"
    DATABASES["default"]["DISABLE_SERVER_SIDE_CURSORS"] = True
    DATABASES["default"].setdefault("OPTIONS", {})["pool"] = {
        "min_size": 1,
        "max_size": env.integer("TOOLHUB_DATABASE_POOL", 20, 1, 1000),
        "timeout": 10,
    }
    # A server that is gone without a word is noticed.
    for name, seconds in (("connect_timeout", 5), ("keepalives_idle", 30), ("keepalives_interval", 10)):
        DATABASES["default"]["OPTIONS"].setdefault(name, seconds)
    DATABASES["default"]["OPTIONS"].setdefault("tcp_user_timeout", 30_000)
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- Redis or Valkey: broker, cache, hints to open pages ------------------------------------------------------------

#: redis://... or unix://...; without it, `manage.py up` starts a Valkey of its own and sets it.
REDIS_URL = env.text("REDIS_URL", "")
CACHES = {
    "default": {
        "BACKEND": "toolhub.cache.CountingCache",
        "LOCATION": REDIS_URL,
        "OPTIONS": {"serializer": "toolhub.cache.JSONSerializer", "socket_connect_timeout": 1, "socket_timeout": 2},
        "KEY_PREFIX": "json",  # what an earlier version left there is pickle
    }
    if REDIS_URL
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
}
CELERY_BROKER_URL = celery_broker_url(REDIS_URL)
#: A message is a doorbell that may be lost: the turn's row is the truth. So nothing is acknowledged late, stored or
#: published twice, and a broker that is away delays an answer by seconds at most.
CELERY_TASK_ACKS_LATE = False
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_PUBLISH_RETRY = False
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CONSUMER = "toolhub.consumer:Consumer"
CELERY_WORKER_SOFT_SHUTDOWN_TIMEOUT = 10.0
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # for ever: meanwhile a worker finds its turns in the database
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_timeout": 5, "socket_connect_timeout": 2, "health_check_interval": 10}
#: Turns that one worker process runs at once.
WORKER_CONCURRENCY = env.integer("TOOLHUB_WORKER_CONCURRENCY", 100, 1, 1000)

#: Seconds after its last sign of life that a worker counts as dead, and the file that a container's check looks at.
WORKER_ALIVE_SECONDS, WORKER_FILE = ALIVE_SECONDS, worker_file(DATA_DIR)

# -- Turns -----------------------------------------------------------------------------------------------------------

#: Seconds that a worker holds a turn without a sign of life, before another may take it.
TOOLHUB_LEASE_SECONDS = env.integer("TOOLHUB_LEASE_SECONDS", 15, 2, 600)
#: Seconds that a worker which is asked to end lets model and tool calls go on that have begun.
TOOLHUB_GRACE_SECONDS = env.integer("TOOLHUB_GRACE_SECONDS", 10, 0, 3_600)
#: Seconds that a turn may run.
TOOLHUB_TURN_SECONDS = env.integer("TOOLHUB_TURN_SECONDS", 600, 1, 86_400)
#: Seconds that it may wait before: for a worker, or for the session's earlier turns.
TOOLHUB_QUEUE_SECONDS = env.integer("TOOLHUB_QUEUE_SECONDS", 86_400, 1, 604_800)
#: Turns that may wait for a worker at once: of one member, and of one organisation.
TOOLHUB_QUEUED_PER_MEMBER = env.integer("TOOLHUB_QUEUED_PER_MEMBER", 200, 1, 1_000_000)
TOOLHUB_QUEUED_PER_ORGANISATION = env.integer("TOOLHUB_QUEUED_PER_ORGANISATION", 2_000, 1, 1_000_000)
#: Turns that may run at once: of one member, and of one organisation. At the limit, its turns wait.
TOOLHUB_RUNNING_PER_MEMBER = env.integer("TOOLHUB_RUNNING_PER_MEMBER", 40, 1, 1_000_000)
TOOLHUB_RUNNING_PER_ORGANISATION = env.integer("TOOLHUB_RUNNING_PER_ORGANISATION", 80, 1, 1_000_000)
#: Model calls that a turn may take, where neither agent nor model says.
TOOLHUB_MAX_ROUNDS = env.integer("TOOLHUB_MAX_ROUNDS", 5, 1, 25)
#: Crashes in a row, without progress between, after which a turn fails.
TOOLHUB_MAX_ATTEMPTS = env.integer("TOOLHUB_MAX_ATTEMPTS", 5, 1, 100)
#: Calls of one model reply that run at once, and that run at all.
TOOLHUB_PARALLEL_CALLS = env.integer("TOOLHUB_PARALLEL_CALLS", 8, 1, 64)
TOOLHUB_MAX_CONTINUATIONS = env.integer("TOOLHUB_MAX_CONTINUATIONS", 4, 0, 25)
#: Turns that one message may open by asking other agents, and those that these ask: the whole tree.
TOOLHUB_CHILDREN_PER_TURN = env.integer("TOOLHUB_CHILDREN_PER_TURN", 16, 1, 100)
TOOLHUB_CALLS_PER_ROUND = env.integer("TOOLHUB_CALLS_PER_ROUND", 32, 1, 128)
#: Calls of one organisation that run on past their time, in one process, before its next ones are refused.
TOOLHUB_LEFT_BEHIND_CALLS = env.integer("TOOLHUB_LEFT_BEHIND_CALLS", 8, 1, 1000)
#: Child processes that read members' texts at the same time: of one process of this service, and of one organisation.
TOOLHUB_CHILD_PROCESSES = env.integer("TOOLHUB_CHILD_PROCESSES", 4, 1, 100)
TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION = env.integer("TOOLHUB_CHILD_PROCESSES_PER_ORGANISATION", 2, 1, 100)
#: Python tools that one process of this service runs at once, each in a process of its own: in all, and of one
#: organisation.
TOOLHUB_PYTHON_PROCESSES = env.integer("TOOLHUB_PYTHON_PROCESSES", 16, 1, 500)
TOOLHUB_PYTHON_PROCESSES_PER_ORGANISATION = env.integer("TOOLHUB_PYTHON_PROCESSES_PER_ORGANISATION", 8, 1, 500)
#: Megabytes that one of them may hold, and requests to the web that one call may make.
TOOLHUB_PYTHON_MEMORY_MB = env.integer("TOOLHUB_PYTHON_MEMORY_MB", 128, 16, 4_096)
TOOLHUB_PYTHON_REQUESTS = env.integer("TOOLHUB_PYTHON_REQUESTS", 10, 0, 100)
#: Whether members' code may run in full Python, which needs the machine's isolation.
TOOLHUB_FULL_PYTHON = env.boolean("TOOLHUB_FULL_PYTHON", False)
#: Whether the tool shell_exec may run commands, in namespaces of the machine.
TOOLHUB_SHELL = env.boolean("TOOLHUB_SHELL", False)
#: Share of the model's context window that one result may take, and the characters it may take in any case.
TOOLHUB_RESULT_SHARE = env.number("TOOLHUB_RESULT_SHARE", 0.22, 0.01, 1.0)
TOOLHUB_MIN_RESULT_CHARS = env.integer("TOOLHUB_MIN_RESULT_CHARS", 1_200, 1, 1_000_000)
#: Seconds between two bytes of a model's answer, and to its first.
TOOLHUB_MODEL_SECONDS = env.integer("TOOLHUB_MODEL_SECONDS", 120, 1, 3_600)
#: Times that one model call is tried, in all.
TOOLHUB_MODEL_TRIES = env.integer("TOOLHUB_MODEL_TRIES", 4, 1, 20)
#: Event streams that one web server keeps open at once; who is refused one asks for the turn instead.
TOOLHUB_STREAMS_PER_TOKEN = env.integer("TOOLHUB_STREAMS_PER_TOKEN", 10, 1, 10_000)
TOOLHUB_STREAMS_PER_MEMBER = env.integer("TOOLHUB_STREAMS_PER_MEMBER", 20, 1, 10_000)
TOOLHUB_STREAMS_PER_ORGANISATION = env.integer("TOOLHUB_STREAMS_PER_ORGANISATION", 100, 1, 10_000)
#: Tools of one address of the MCP server that are listed each; above it clients get `search_tools` and `call_tool`.
TOOLHUB_MCP_TOOLS = env.integer("TOOLHUB_MCP_TOOLS", 40, 1, 1_000)
#: Requests of clients of the gateway that one web server answers at once; further ones are refused for now.
TOOLHUB_REQUESTS_PER_TOKEN = env.integer("TOOLHUB_REQUESTS_PER_TOKEN", 40, 1, 10_000)
TOOLHUB_REQUESTS_PER_MEMBER = env.integer("TOOLHUB_REQUESTS_PER_MEMBER", 80, 1, 10_000)
TOOLHUB_REQUESTS_PER_ORGANISATION = env.integer("TOOLHUB_REQUESTS_PER_ORGANISATION", 400, 1, 100_000)
#: Days until a session is deleted that was made for one request of a client that named none.
TOOLHUB_THROWAWAY_DAYS = env.integer("TOOLHUB_THROWAWAY_DAYS", 30, 1, 3_650)

# -- The way out -----------------------------------------------------------------------------------------------------

#: Hosts, addresses or networks on private addresses that may be reached for one purpose each: `tool:10.1.0.0/16`,
#: `provider:ollama.internal:11434`, `mcp@acme:localhost` for one organisation. Everything else private is refused.
TOOLHUB_PRIVATE_HOSTS = env.words("TOOLHUB_PRIVATE_HOSTS", [])
for entry in TOOLHUB_PRIVATE_HOSTS:
    env.refuse_if(
        allowed_host(entry) is None,
        "TOOLHUB_PRIVATE_HOSTS must be names, addresses or networks such as localhost, 10.1.0.0/16 or "
        f"ollama.internal:11434, comma-separated; it has {entry!r}.",
    )
#: MCP servers that are processes of this installation: a file in the `mcpServers` form, as {name: StdioEntry}. Nobody
#: else can name a process.
TOOLHUB_MCP_STDIO = {}
if _mcp_file := env.text("TOOLHUB_MCP_STDIO", ""):
    try:
        TOOLHUB_MCP_STDIO = read_entries(Path(_mcp_file).read_text())
    except (OSError, UnicodeError) as error:
        refuse(f"TOOLHUB_MCP_STDIO names {_mcp_file}, which cannot be read: {error}.")
    except EntriesRefused as error:
        refuse(f"TOOLHUB_MCP_STDIO names {_mcp_file}, which cannot be used: {error}.")
#: Sessions with MCP servers that one process of this service keeps open, and seconds until an idle one is closed.
TOOLHUB_MCP_SESSIONS = env.integer("TOOLHUB_MCP_SESSIONS", 100, 1, 10_000)
TOOLHUB_MCP_IDLE_SECONDS = env.integer("TOOLHUB_MCP_IDLE_SECONDS", 300, 1, 86_400)
#: Provider of a new organisation; without a key and an address it is the offline model.
OPENAI_API_KEY = env.text("OPENAI_API_KEY", "")
OPENAI_BASE_URL = env.text("OPENAI_BASE_URL", "")
OPENAI_MODEL = env.text("OPENAI_MODEL", "gpt-5-mini")
#: Where the offline model listens, set by `manage.py up`.
TOOLHUB_OFFLINE_MODEL_URL = env.text(
    "TOOLHUB_OFFLINE_MODEL_URL", f"http://127.0.0.1:{PORT + 1 if PORT < 65535 else 1}/v1"
)
#: How fast it writes. It reads the environment itself; here the value is only checked.
TOOLHUB_OFFLINE_WORD_SECONDS = env.number("TOOLHUB_OFFLINE_WORD_SECONDS", 0.02, 0.0, 5.0)
#: Folder with one workspace folder an organisation.
WORKSPACES_DIR = Path(env.text("TOOLHUB_WORKSPACES_DIR", str(DATA_DIR / "workspaces"))).expanduser().resolve()

# -- First start -----------------------------------------------------------------------------------------------------

#: Password and API token of the first administrator; random, and printed once, unless said.
TOOLHUB_BOOTSTRAP_EMAIL = env.text("TOOLHUB_BOOTSTRAP_EMAIL", "admin@example.com")
TOOLHUB_BOOTSTRAP_PASSWORD = env.text("TOOLHUB_BOOTSTRAP_PASSWORD", "")
TOOLHUB_BOOTSTRAP_TOKEN = env.text("TOOLHUB_BOOTSTRAP_TOKEN", "", at_least=32)
#: Whether organisations that are made from now on, the first one too, begin with the personal assistant.
TOOLHUB_ASSISTANT = env.boolean("TOOLHUB_ASSISTANT", True)

# -- Files beside the database ----------------------------------------------------------------------------------------

#: A folder of Python tools that `manage.py up` keeps in step: whose it is, and the member who answers for it.
TOOLHUB_TOOL_FOLDER = env.text("TOOLHUB_TOOL_FOLDER", "")
TOOLHUB_TOOL_FOLDER_ORGANISATION = env.text("TOOLHUB_TOOL_FOLDER_ORGANISATION", "acme")
TOOLHUB_TOOL_FOLDER_APPROVED_BY = env.text("TOOLHUB_TOOL_FOLDER_APPROVED_BY", "")
#: A file of toolkits and agents that each start applies: whose they are, and the member in whose name it is done.
TOOLHUB_AGENTS_FILE = env.text("TOOLHUB_AGENTS_FILE", "")
TOOLHUB_AGENTS_FILE_ORGANISATION = env.text("TOOLHUB_AGENTS_FILE_ORGANISATION", "acme")
TOOLHUB_AGENTS_FILE_BY = env.text("TOOLHUB_AGENTS_FILE_BY", TOOLHUB_BOOTSTRAP_EMAIL)

# -- Metrics and traces ------------------------------------------------------------------------------------------------

#: Bearer token that a Prometheus server reads /metrics with. Without one there is no such address.
TOOLHUB_METRICS_TOKEN = env.text("TOOLHUB_METRICS_TOKEN", "", at_least=32)
#: Whether its figures are given for each organisation, whose short name is then a label.
TOOLHUB_METRICS_ORGANISATIONS = env.boolean("TOOLHUB_METRICS_ORGANISATIONS", False)

#: Where workers send spans of turns, by OTLP over HTTP: all signals below one address, or traces at their own. Read,
#: with the rest of its variables, by OpenTelemetry itself.
OTEL_EXPORTER_OTLP_ENDPOINT = env.text("OTEL_EXPORTER_OTLP_ENDPOINT", "")
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT = env.text("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
OTEL_SDK_DISABLED = env.boolean("OTEL_SDK_DISABLED", False)
TOOLHUB_TRACES = bool(OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT) and not OTEL_SDK_DISABLED

# -- Django ----------------------------------------------------------------------------------------------------------

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "toolhub.web.static_files.StaticFiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.mfa",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
    "csp",
    "toolhub.tenants",
    "capabilities",
    "capabilities.assistant",
    "sessions",
]
MIDDLEWARE = [
    "toolhub.web.health.answer_by_any_name",
    "toolhub.web.compression.Compression",
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "toolhub.tenants.middleware.TenancyMiddleware",
]
ROOT_URLCONF = "toolhub.urls"
ASGI_APPLICATION = "toolhub.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "toolhub.tenants.pages.frame",
            ],
        },
    },
]

AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["allauth.account.auth_backends.AuthenticationBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "home"
ACCOUNT_ADAPTER = "toolhub.tenants.identity.login.AccountAdapter"
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_LOGOUT_REDIRECT_URL = "account_login"
#: Sign-ins: 30 a minute from one address, and 5 failed ones in 5 minutes for one account from one address. Links to
#: join or to reset: 60 a minute from one address.
ACCOUNT_RATE_LIMITS = {"login": "30/m/ip", "login_failed": "10/m/ip,5/5m/key", "link": "60/m/ip"}
#: A new password ends every login of its user, this one too.
ACCOUNT_LOGOUT_ON_PASSWORD_CHANGE = True
MFA_ADAPTER = "toolhub.tenants.identity.login.MFAAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "toolhub"
#: A code is good for its 30 seconds, and the 30 before and after, for clocks that differ.
MFA_TOTP_TOLERANCE = 1

SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = PRODUCTION
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
if BEHIND_TLS_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_REDIRECT_EXEMPT = ["^healthz$", "^readyz$", "^metrics$"]
CSRF_FAILURE_VIEW = "toolhub.web.problems.form_expired"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
#: The matrix of roles without script: a field for each cell.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 5_000

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'none'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "font-src": ["'self'"],
        "connect-src": ["'self'"],
        "form-action": ["'self'"],
        "base-uri": ["'none'"],
        "frame-ancestors": ["'none'"],
        "manifest-src": ["'self'"],
    }
}

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_I18N = False
USE_TZ = True
STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
#: Where they are collected, by the build of an image or by `manage.py up`; until then each is served from its source.
COLLECTED = BASE_DIR / "staticfiles" if PRODUCTION else DATA_DIR / "static"
COLLECTS = "collectstatic" in sys.argv[1:2] or ("prepare" in sys.argv[1:2] and not PRODUCTION)
HASHED = COLLECTS or (COLLECTED / "staticfiles.json").is_file()
STATIC_ROOT = COLLECTED if HASHED else None
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if HASHED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_KEEP_ONLY_HASHED_FILES = True
WHITENOISE_USE_FINDERS = not HASHED

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["toolhub.tenants.rest.wire.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "toolhub.tenants.rest.wire.TokenScope",
    ],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["toolhub.tenants.rest.wire.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "toolhub.tenants.rest.api.error_response",
    "DEFAULT_PAGINATION_CLASS": None,
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "toolhub",
    "DESCRIPTION": "The control plane for the tools of LLM agents.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PUBLIC": True,
    "SERVE_AUTHENTICATION": [],
    "SERVE_PERMISSIONS": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "ENUM_NAME_OVERRIDES": {
        "TaskStatusEnum": "capabilities.assistant.models.tasks.Task.Status",
        "ApprovalKindEnum": "sessions.models.approvals.ApprovalKind",
        "ApprovalStatusEnum": "sessions.models.approvals.ApprovalStatus",
        "BudgetScopeEnum": "sessions.models.budgets.BudgetScope",
        "GrantEffectEnum": "capabilities.models.permissions.Effect",
        "VersionStatusEnum": "capabilities.models.catalogue.VersionStatus",
        "ToolEffectEnum": "capabilities.catalogue.http_tools.writes.EFFECTS",
        "AgentScopeEnum": "capabilities.models.agents.AgentScope",
        "CredentialKindEnum": "capabilities.models.credentials.CredentialKind",
        "CredentialScopeEnum": "capabilities.models.credentials.CredentialScope",
        "ImportStatusEnum": "capabilities.models.imports.ImportStatus",
        "ImportSourceEnum": "capabilities.models.imports.ImportSource",
        "ImportedStatusEnum": "capabilities.models.imports.ImportedStatus",
        "LoadSourceEnum": ["initial", "model", "person"],
    },
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "toolhub.tenants.rest.openapi.with_errors",
    ],
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "plain": {"()": "toolhub.logs.MaskingFormatter", "format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {
        "handlers": ["stderr"],
        "level": env.choice("TOOLHUB_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
    },
    "loggers": {
        # A page or a stream that its reader left is no fault of ours.
        "django.request": {"level": "ERROR"},
        "httpx2": {"level": "WARNING"},
        # At INFO it writes a line for each request of a client of MCP.
        "mcp.server": {"level": "WARNING"},
        # At DEBUG it writes the headers of each request, and with them keys of providers and far sides.
        "httpcore2": {"level": "WARNING"},
    },
}

env.check_names()
if PRODUCTION and os.environ.get("TOOLHUB_BUILD") != "1":
    env.refuse_if(DEBUG, "DEBUG must be off in production.")
    env.refuse_if(
        len(SECRET_KEY) < 50 or len(set(SECRET_KEY)) < 10 or SECRET_KEY.startswith("django-insecure"),
        "SECRET_KEY must be at least 50 random characters in production.",
    )
    env.refuse_if("*" in ALLOWED_HOSTS, "ALLOWED_HOSTS must name the hosts in production, not *.")
    env.refuse_if(not env.text("ALLOWED_HOSTS", ""), "ALLOWED_HOSTS must be set in production.")
    env.refuse_if(not REDIS_URL, "REDIS_URL must be set in production.")
