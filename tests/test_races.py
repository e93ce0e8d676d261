"""Two who do the same at the same moment, each with a database connection of its own. tests/test_postgres.py runs this
file on PostgreSQL, where they really run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.utils import timezone

from capabilities.catalogue.imports.found import FoundTool, ReadSource
from capabilities.catalogue.imports.readers import Source, sources
from capabilities.catalogue.imports.runs import run_import
from capabilities.catalogue.imports.writes.decide import accept_imported, dismiss_imported, import_rows
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.catalogue.servers.refresh import claim_due as claim_server
from capabilities.catalogue.servers.refresh import refresh_server
from capabilities.catalogue.tools.writes import Origin, create_tool
from capabilities.catalogue.versions.writes import decide_version, roll_back
from capabilities.common.refused import ChangeRefused
from capabilities.contract.context import TaskStarted
from capabilities.models import (
    ImportedTool,
    ImportSource,
    ImportStatus,
    McpServer,
    StoredSecret,
    Tool,
    ToolImport,
    ToolKind,
    ToolVersion,
    VersionStatus,
)
from capabilities.running.credentials.oauth.revoking import claim_due as claim_revocation
from capabilities.running.credentials.oauth.revoking import revoke_claimed
from capabilities.running.credentials.signing import stored_credential
from capabilities.running.credentials.writes import disconnect_account
from sessions.models import CallWait, ChatSession, StepStatus, TurnStatus
from sessions.turns import ledger
from sessions.turns.reaping import reap
from sessions.worker.process import work_on
from tests.authorization_server import AuthorizationServer
from tests.capabilities.catalogue.imports.conftest import DOCUMENT, pet
from tests.capabilities.catalogue.servers.servers import make_server
from tests.capabilities.catalogue.versions.test_writes import definition
from tests.capabilities.running.credentials.test_oauth import connect, oauth_credential
from tests.capabilities.running.mcp_client.over_http import http_server
from tests.capabilities.running.mcp_client.scripted import Script, text_result
from tests.cast import make_agent, make_category, make_member, make_organisation, make_role, make_session
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.far_sides import FarSide, book_with, make_booking
from tests.sessions.run_turns import events_of, run, tool_steps_of
from tests.sessions.steps import reread
from tests.threads import at_once
from toolhub.tenants.models import Access, AuditEntry, Membership, Organisation
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def acme(db: None) -> Iterator[Organisation]:
    """The scope of the test and of its threads."""
    acme = make_organisation("acme")
    with organisation_scope(acme):
        yield acme


@pytest.fixture
def admins(acme: Organisation) -> list[Membership]:
    return [make_member(acme, name, Access.ADMIN) for name in ("alice", "dora", "erin", "fred")]


def outcome(work: Callable[[], Any]) -> str:
    """`done`, or the code of the refusal."""
    try:
        work()
    except ChangeRefused as refused:
        return refused.code
    return "done"


def tried(works: list[Callable[[], Any]]) -> list[str]:
    return at_once([partial(outcome, work) for work in works])


def entries(prefix: str) -> int:
    return AuditEntry.objects.filter(action__startswith=prefix).count()


# -- Versions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def waiting(acme: Organisation) -> ToolVersion:
    """Of a Python tool that nobody of the admins wrote."""
    origin = Origin(ToolKind.PYTHON)
    tool = create_tool(make_category(acme), definition(), actor=None, origin=origin, status=VersionStatus.PENDING)
    return ToolVersion.objects.get(tool=tool)


def test_a_version_is_decided_once_by_members_at_the_same_time(waiting: ToolVersion, admins: list[Membership]) -> None:
    def decide(actor: Membership, approve: bool) -> None:
        version = ToolVersion.objects.select_related("tool").get(pk=waiting.pk)
        decide_version(version, approve=approve, reason="No.", actor=actor)

    said = tried([partial(decide, actor, index % 2 == 0) for index, actor in enumerate(admins)])

    assert sorted(said) == ["conflict", "conflict", "conflict", "done"]
    assert entries("tool.version_") == 1
    waiting.refresh_from_db()
    tool = Tool.objects.get()
    assert (tool.current_version_id == waiting.pk) == (waiting.status == VersionStatus.APPROVED)
    assert waiting.decided_by_id in {actor.pk for actor in admins}


def test_an_approval_and_a_way_back_leave_one_version_in_force(waiting: ToolVersion, admins: list[Membership]) -> None:
    """Two versions wait and one is retired: whatever comes first, one is in force, and it is the tool's current one."""
    tool = waiting.tool
    versions = [waiting, *(_pending(tool, number) for number in (2, 3))]
    for version in versions[:2]:
        decide_version(version, approve=True, actor=admins[0])

    tried(
        [
            partial(roll_back, tool, 1, actor=admins[1]),
            partial(decide_version, versions[2], approve=True, actor=admins[2]),
            partial(roll_back, tool, 1, actor=admins[3]),
        ]
    )

    tool.refresh_from_db()
    (in_force,) = ToolVersion.objects.filter(tool=tool, status=VersionStatus.APPROVED)
    assert tool.current_version_id == in_force.pk


def _pending(tool: Tool, number: int) -> ToolVersion:
    first = ToolVersion.objects.filter(tool=tool).values().first()
    assert first is not None
    unique = {"id", "number", "sha256", "public_id", "status"}
    fields = {name: value for name, value in first.items() if name not in unique}
    return ToolVersion.objects.create(**fields, number=number, sha256=str(number) * 64, status=VersionStatus.PENDING)


# -- Imports ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def found(acme: Organisation, admins: list[Membership], monkeypatch: pytest.MonkeyPatch) -> ToolImport:
    """Two definitions that wait for a decision."""
    source = ReadSource((pet("listPets"), pet("addPet")), title="Pets", base_url="https://pets.example.org/v1")
    monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(lambda _: source))
    asked = start_import(ImportSource.OPENAPI, actor=admins[0], document=DOCUMENT)
    run_import(asked.public_id)
    return ToolImport.objects.get(pk=asked.pk)


def test_an_import_accepted_by_several_at_once_creates_its_tools_once(
    acme: Organisation, found: ToolImport, admins: list[Membership]
) -> None:
    category = make_category(acme, "pets", is_core=False)

    def accept(actor: Membership) -> list[str]:
        return list(accept_imported(import_rows(found), category, actor=actor).created)

    made = at_once([partial(accept, actor) for actor in admins])

    assert sorted(made) == [[], [], [], ["listPets", "addPet"]]
    assert sorted(Tool.objects.values_list("name", flat=True)) == ["addPet", "listPets"]
    assert (ToolVersion.objects.count(), entries("import.accept")) == (2, 1)


def test_accepting_and_dismissing_at_once_leaves_one_result(
    acme: Organisation, found: ToolImport, admins: list[Membership]
) -> None:
    category = make_category(acme, "pets", is_core=False)

    at_once(
        [
            lambda: accept_imported(import_rows(found), category, actor=admins[0]),
            lambda: dismiss_imported(import_rows(found), actor=admins[1]),
        ]
    )

    (status,) = set(ImportedTool.objects.values_list("status", flat=True))
    assert Tool.objects.count() == {"accepted": 2, "dismissed": 0}[status]
    found.refresh_from_db()
    assert found.status == ImportStatus.CLOSED


def test_of_two_imports_that_are_accepted_at_once_each_has_its_own_tools(
    acme: Organisation, found: ToolImport, admins: list[Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both found the same names."""
    category = make_category(acme, "pets", is_core=False)
    other = start_import(ImportSource.OPENAPI, actor=admins[1], document='{"another": 1}')
    run_import(other.public_id)

    works = [partial(accept_imported, import_rows(each), category) for each in (found, other)]
    said = tried([partial(work, actor=actor) for work, actor in zip(works, admins, strict=False)])

    names = list(Tool.objects.values_list("name", flat=True))
    assert "done" in said
    assert len(names) == len(set(names)) == 2 * said.count("done")


def test_of_several_workers_one_reads_an_import(
    acme: Organisation, admins: list[Membership], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def reader(_: ToolImport) -> ReadSource:
        read.append(1)
        return ReadSource((FoundTool("listPets", description="Lists."),), title="Pets", base_url="https://p.example")

    monkeypatch.setitem(sources._values, ImportSource.OPENAPI, Source(reader))
    asked = start_import(ImportSource.OPENAPI, actor=admins[0], document=DOCUMENT)

    at_once([partial(run_import, asked.public_id)] * 4)

    assert (len(read), ImportedTool.objects.count()) == (1, 1)


# -- MCP servers ------------------------------------------------------------------------------------------------------


def test_a_server_is_read_once_by_several_workers_and_well_by_two_readings(admins: list[Membership]) -> None:
    script = Script()
    script.tool("echo", text_result("hello"))
    script.tool("add", text_result("3"))
    with http_server(script) as url:
        server = make_server(admins[0], url=url)
        asked = start_import(ImportSource.MCP, actor=admins[0], server=server)
        run_import(asked.public_id)
        accept_imported(import_rows(asked), make_category(server.organisation, "notes", is_core=False), actor=admins[0])
        script.tool("echo", text_result("hello"), description="It says something else now.")
        script.tool("new", text_result("new"))
        McpServer.objects.filter(pk=server.pk).update(refresh_at=timezone.now() - timedelta(seconds=1))

        claimed = [each for each in at_once([claim_server] * 4) if each is not None]
        at_once([partial(refresh_server, server.pk, server.organisation_id)] * 3)

    assert claimed == [(server.pk, server.organisation_id)]
    changed = Tool.objects.get(name="mcp__notes__echo")
    assert changed.quarantine
    assert ToolVersion.objects.filter(tool=changed, status=VersionStatus.PENDING).count() == 1
    assert ToolImport.objects.filter(server=server).exclude(pk=asked.pk).count() <= 1
    server.refresh_from_db()
    assert (server.error, server.refreshing_until) == ("", None)


# -- Sign-ins ---------------------------------------------------------------------------------------------------------


def test_a_sign_in_that_is_renewed_and_disconnected_at_once_ends_at_the_server(acme: Organisation) -> None:
    """Whoever comes first: nothing lives on there, and nobody reads a token that was ended."""
    bob = make_member(acme, "bob")
    with AuthorizationServer(delay=0.2) as server:
        far = oauth_credential(acme, server)
        secret = connect(far, bob)
        StoredSecret.objects.filter(pk=secret.pk).update(expires_at=timezone.now() - timedelta(seconds=1))

        def sign() -> str:
            try:
                stored_credential(far.pk, bob.pk, at_most=5)
            except Exception as refused:
                return type(refused).__name__
            return "signed"

        said = at_once([sign, sign, lambda: disconnect_account(secret, actor=bob)])
        while (key := claim_revocation()) is not None:
            revoke_claimed(key)

        assert set(said[:2]) <= {"LinkNeeded", "signed"}
        assert not StoredSecret.objects.exists()
        assert all(grant.is_over for grant in server.tokens.values())


# -- Long tasks -------------------------------------------------------------------------------------------------------


def test_of_several_workers_one_asks_how_far_a_task_is(
    acme: Organisation, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = make_member(acme, "bob")
    make_booking(acme)
    make_role(acme, bob)
    session: ChatSession = make_session(bob, make_agent(acme, provider.url))
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "any"})]), Say("Booked."))
    task = TaskStarted("It is being booked.", seconds=5, state="task 7")
    far_side = book_with(monkeypatch, FarSide({"booked": "4a"}))
    far_side.answers = [task, {"booked": "4a"}]
    turn = run(session)
    assert turn.status == TurnStatus.WAITING_TASK
    with system_scope():
        CallWait.objects.filter(turn=turn).update(poll_at=ledger.from_now(-1))

    at_once([reap] * 4)
    at_once([partial(work_on, turn.pk)] * 4)

    turn = reread(turn)
    (step,) = tool_steps_of(turn)
    assert (turn.status, step.status, len(far_side.calls)) == (TurnStatus.DONE, StepStatus.DONE, 2)
    assert events_of(turn).count("done") == 1
