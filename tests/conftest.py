from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cast import make_member, make_organisation
from tests.scripted_openai import ScriptedOpenAI
from toolhub.tenants.models import Access, Membership, Organisation
from toolhub.tenants.scope import organisation_scope


@pytest.fixture
def acme(db: None) -> Organisation:
    return make_organisation("acme")


@pytest.fixture
def globex(db: None) -> Organisation:
    return make_organisation("globex")


@pytest.fixture
def alice(acme: Organisation) -> Membership:
    return make_member(acme, "alice", Access.ADMIN)


@pytest.fixture
def bob(acme: Organisation) -> Membership:
    return make_member(acme, "bob")


@pytest.fixture
def charlie(globex: Organisation) -> Membership:
    return make_member(globex, "charlie", Access.ADMIN)


@pytest.fixture
def provider() -> Iterator[ScriptedOpenAI]:
    """A model provider that answers from a script."""
    server = ScriptedOpenAI().start()
    yield server
    server.stop()


@pytest.fixture
def in_acme(acme: Organisation) -> Iterator[Organisation]:
    """The test's own reads and writes are Acme's."""
    with organisation_scope(acme):
        yield acme
