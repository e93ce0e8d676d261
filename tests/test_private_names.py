"""Private names of Django and of what stands on it that the service uses: each with its file and its reason. A new one
is added here, or done without; an upgrade that takes one away fails here."""

from __future__ import annotations

from typing import NamedTuple

from tests.private_names import Source, has, service

PACKAGES = ("django", "rest_framework", "allauth", "celery", "kombu", "asgiref")


class Private(NamedTuple):
    #: The module or class that has the name.
    of: str
    reason: str


MODEL, MODELS, QUERYSET = "django.db.models.Model", "django.db.models.base.ModelBase", "django.db.models.QuerySet"
SQLITE, POSTGRESQL = (f"django.db.backends.{name}.base.DatabaseWrapper" for name in ("sqlite3", "postgresql"))
REQUEST, ADAPTER = "rest_framework.request.Request", "allauth.account.adapter.DefaultAccountAdapter"

ROW_IS_STORED = Private(MODEL, "a row that was inserted by a prepared statement is told that it is stored")
SAME_DATABASE = Private(MODEL, "rows are made of columns as `from_db` makes them, for the database of another row")
EVERY_ROW = Private(MODELS, "a model that is not named has no other manager that is sure to be there")
INNER_REQUEST = Private(REQUEST, "the middleware keeps token and member on Django's request")
PAST_SIGNALS = Private(QUERYSET, "DELETE in one statement: without rows read, signals or cascades")

#: By file and name.
TABLE = {
    ("capabilities/agents/agents/writes.py", "_base_manager"): EVERY_ROW,
    ("capabilities/common/columns.py", "_post_clean"): Private(
        "django.forms.ModelForm",
        "the write checks the values, for REST too: the model's own check would be a second one",
    ),
    ("capabilities/management/commands/rotate_field_keys.py", "_base_manager"): EVERY_ROW,
    ("sessions/doors/chats/turns_api.py", "_request"): INNER_REQUEST,
    ("sessions/doors/gateway/api.py", "_request"): INNER_REQUEST,
    ("sessions/loop/conversation/history.py", "_state"): SAME_DATABASE,
    ("sessions/selection/unused_sets.py", "_raw_delete"): PAST_SIGNALS,
    ("sessions/turns/new_steps.py", "_state"): ROW_IS_STORED,
    ("toolhub/broker.py", "_brpop_read"): Private(
        "kombu.transport.redis.Channel", "messages are read outside of any guard: one that is no task ends the worker"
    ),
    ("toolhub/embedded/sqlite3/base.py", "_close"): Private(SQLITE, "the connection is kept for the next thread"),
    ("toolhub/embedded/sqlite3/base.py", "_commit"): Private(SQLITE, "the turn to write ends with the transaction"),
    ("toolhub/embedded/sqlite3/base.py", "_rollback"): Private(SQLITE, "the turn to write ends with the transaction"),
    ("toolhub/embedded/sqlite3/base.py", "_start_transaction_under_autocommit"): Private(
        SQLITE, "a transaction waits for its turn to write, and begins with its first statement"
    ),
    ("toolhub/postgresql/base.py", "_close"): Private(POSTGRESQL, "a connection of its own goes back to no pool"),
    ("toolhub/postgresql/base.py", "_configure_connection"): Private(
        POSTGRESQL, "a connection outside of the pool is set up as one of the pool"
    ),
    ("toolhub/tenants/audit/writes.py", "_state"): Private(MODEL, "a row that is not stored has no id to write down"),
    ("toolhub/tenants/identity/login.py", "_get_login_attempts_cache_key"): Private(
        ADAPTER, "wrong passwords are counted for account and address together"
    ),
    ("toolhub/tenants/identity/login.py", "truncate_ip"): Private(
        "allauth.core.internal.ratelimit", "addresses are counted as allauth counts them: IPv6 by its network"
    ),
    ("toolhub/tenants/rest/api.py", "_request"): INNER_REQUEST,
    ("toolhub/tenants/rest/wire.py", "_request"): INNER_REQUEST,
    ("toolhub/tenants/rows/guarded.py", "_base_manager"): EVERY_ROW,
    ("toolhub/tenants/rows/guarded.py", "_db"): Private(
        "django.db.models.Manager", "a manager's own queryset goes to the manager's database"
    ),
    ("toolhub/tenants/rows/guarded.py", "_raw_delete"): Private(QUERYSET, "the guard of this way to delete"),
    ("toolhub/tenants/rows/statements.py", "_state"): ROW_IS_STORED,
    ("toolhub/web/problems.py", "_has_been_logged"): Private(
        "django.utils.log", "trouble with the database is one line in the log already"
    ),
}

#: Private names that are reached from outside, and are of no package above.
ELSEWHERE = {
    ("capabilities/catalogue/imports/matching.py", "_helpers"): "of this project: kept on the row",
    ("capabilities/running/mcp_client/processes.py", "_process"): "of anyio",
    ("capabilities/running/mcp_client/processes.py", "_transport"): "of asyncio",
    ("toolhub/postgresql/base.py", "_pool"): "of psycopg_pool",
}


def test_every_private_name_in_use_is_in_the_table_and_no_other() -> None:
    found = {(use.file, use.name): use for use in service().uses(*PACKAGES)}

    assert [str(use) for key, use in found.items() if key not in TABLE and key not in ELSEWHERE] == []
    assert {*TABLE, *ELSEWHERE} - {*found} == set()


def test_the_installed_versions_have_each_name() -> None:
    assert [key for key, private in TABLE.items() if not has(private.of, key[1])] == []


def test_each_way_to_a_private_name_is_seen() -> None:
    texts = {
        "capabilities/a.py": "from django.db.models import (\n    Model,\n    _private,\n)\n"
        "import allauth.core.internal.x\n",
        "capabilities/b.py": "from django.db import models\nclass Base(models.Manager[int]):\n    pass\n",
        "capabilities/c.py": "from capabilities.b import Base\nclass Own(Base):\n    _own = 1\n    _hints = {}\n"
        "    def f(self):\n        return self._own, self._db, super()._constructor_args\n",
        "capabilities/d.py": "import os\nfrom django import db\ndef f(row):\n    os._exit(row._meta.x)\n"
        "    return row._state, getattr(row, '_a'), vars(row)['_b'], row.__dict__.pop('_c', None), db._d\n",
    }

    found = {(use.file[-4], use.name) for use in Source(texts).uses(*PACKAGES)}

    assert found == {
        *(("a", name) for name in ("_private", "x")),
        *(("c", name) for name in ("_hints", "_db", "_constructor_args")),
        *(("d", name) for name in ("_state", "_a", "_b", "_c", "_d")),
    }
