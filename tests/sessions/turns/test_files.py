"""Files of messages, as the tools that read the workspace find them: in their own session alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry
from sessions.models import ChatSession
from sessions.turns import accepting
from sessions.turns.files import attachable
from tests.capabilities.assistant.builtin.conftest import context
from tests.capabilities.assistant.builtin.test_document import pdf
from tests.cast import make_session
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope

__all__ = ["context"]

pytestmark = pytest.mark.django_db

FILES = [("plan.pdf", pdf("Vacation takes 30 days.")), ("notes.txt", b"first\nsecond\n"), ("data.json", b"[1]")]


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    session = make_session(bob)
    with organisation_scope(session.organisation_id):
        accepting.accept(session, "look", member=bob, files=attachable(session, FILES))
    return session


def test_tools_read_an_attached_file_by_the_path_in_its_message(session: ChatSession, context: ToolContext) -> None:
    own = replace(context, organisation_id=session.organisation_id, session_id=session.pk)
    with organisation_scope(session.organisation_id):
        text = registry.tools["file_read"].call(own, {"path": "attachments/1/notes.txt", "offset": 2})
        assert own.untrusted.is_set()
        document = registry.tools["document_read"].call(own, {"path": "attachments/1/plan.pdf"})
        status = registry.tools["file_stat"].call(own, {"path": "attachments/1/data.json"})

    assert (text["text"], text["total_lines"]) == ("second\n", 2)
    assert "30 days" in document["text"]
    assert status["bytes"] == 3


@pytest.mark.parametrize("path", ["attachments/2/notes.txt", "attachments/1/other.txt", "attachments/x/notes.txt"])
def test_what_is_not_attached_is_looked_for_in_the_workspace(
    session: ChatSession, context: ToolContext, path: str
) -> None:
    own = replace(context, organisation_id=session.organisation_id, session_id=session.pk)
    with organisation_scope(session.organisation_id), pytest.raises(ToolError, match="workspace"):
        registry.tools["file_read"].call(own, {"path": path})
    assert not own.untrusted.is_set()


def test_s3_another_session_has_none_of_them(session: ChatSession, context: ToolContext, charlie: Membership) -> None:
    with organisation_scope(session.organisation_id):
        own = make_session(session.membership, session.agent)
    elsewhere = make_session(charlie)
    for other in (own, elsewhere):
        # Of another organisation, even by the session's own id.
        for session_id in (other.pk, session.pk) if other is elsewhere else (other.pk,):
            reader = replace(context, organisation_id=other.organisation_id, session_id=session_id)
            with organisation_scope(other.organisation_id), pytest.raises(ToolError):
                registry.tools["file_read"].call(reader, {"path": "attachments/1/notes.txt"})
