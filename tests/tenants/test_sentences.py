"""Each entry of the audit is a sentence, the same on pages, in files and over REST."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.http import StreamingHttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from capabilities.catalogue.tools.writes import set_tool_enabled
from capabilities.models import Tool
from tests.cast import make_agent, make_tool
from tests.paths import ROOT
from tests.rest import Rest
from toolhub.tenants.audit.files import csv_parts
from toolhub.tenants.audit.queries import AuditFilter
from toolhub.tenants.audit.sentences import NOUNS, PATTERNS, VERBS, difference, has_words, sentence_of
from toolhub.tenants.audit.writes import record
from toolhub.tenants.models import AuditEntry, Membership, Organisation
from toolhub.tenants.rows.guarded import TenantModel
from toolhub.tenants.rows.scope import organisation_scope


@pytest.fixture
def rest(alice: Membership) -> Rest:
    return Rest(alice)


AUDIT = "/o/acme/audit/"
#: Begins the sentence of an action that has no verb.
RECORDED = "Alice recorded"
#: Actions that a call of `record` does not spell out: by the expression in the source.
SPELLED = {
    "DENIED": ("denied",),
    "action": ("credential.secret", "account.connect", "service.agree_restart", "service.agree_update"),
    "f'approval.{_VERBS[status]}'": ("approval.approve", "approval.deny", "approval.respond"),
    "f'python_module.version_{verb}'": ("python_module.version_approve", "python_module.version_reject"),
    "f'runtime_config.{verb}'": ("runtime_config.create", "runtime_config.update", "runtime_config.delete"),
}


def actions_in_source() -> Iterator[tuple[str, str]]:
    """Each action that is recorded somewhere, with the file."""
    for folder in ("toolhub", "capabilities", "sessions"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "record":
                    for action in actions_of(node.args[0]):
                        yield action, str(path.relative_to(ROOT))


def actions_of(given: ast.expr) -> tuple[str, ...]:
    if isinstance(given, ast.Constant):
        return (str(given.value),)
    if isinstance(given, ast.IfExp):
        return actions_of(given.body) + actions_of(given.orelse)
    return SPELLED[ast.unparse(given)]


def test_every_action_in_the_source_has_words() -> None:
    found = dict(actions_in_source())

    assert len(found) > 100
    assert {action: path for action, path in found.items() if not has_words(action)} == {}


def test_the_tables_say_nothing_that_no_action_needs() -> None:
    found = {action for action, _ in actions_in_source()}

    assert PATTERNS.keys() - found == set()
    assert VERBS.keys() - {action.rpartition(".")[2] for action in found - PATTERNS.keys()} == set()
    assert NOUNS.keys() - {action.rpartition(".")[0] for action in found - PATTERNS.keys()} == set()


# -- One sentence -----------------------------------------------------------------------------------------------------


@pytest.fixture
def sentence(alice: Membership, in_acme: Organisation) -> Any:
    """Sentence of an entry of Alice's about a tool, or another row."""
    tool = make_tool(in_acme, "task_list")

    def make(action: str, before: Any = None, after: Any = None, target: TenantModel | None = None) -> str:
        row = record(action, target or tool, actor=alice, before=before, after=after)
        return str(sentence_of(AuditEntry.objects.select_related("actor__user").get(pk=row.pk)))

    return make


@pytest.mark.django_db
def test_a_sentence_says_who_did_what_to_which_thing(sentence: Any, in_acme: Organisation) -> None:
    agent = make_agent(in_acme)
    off, on = {"is_enabled": False}, {"is_enabled": True}

    assert sentence("tool.disable", on, off) == "Alice switched task_list off"
    assert sentence("hook.update", off, on, agent) == f"Alice switched hook {agent} on"
    assert sentence("agent.create", None, {"name": "x"}, agent) == f"Alice created agent {agent}"
    before = {"prompt": "a" * 50, "tool_limit": 20, "tools": ["a", "b"]}
    after = {"prompt": "b" * 50, "tool_limit": 40, "tools": ["b", "c"]}
    changed = sentence("agent.update", before, after, agent)
    assert changed.startswith(f"Alice changed agent {agent}: prompt, ")
    assert changed.partition("prompt, ")[2].split(" and ") == ["tool limit 20 → 40", "tools added c, removed a"]
    assert sentence("role.assign", None, {"role": "coder"}) == "Alice gave task_list the role coder"
    assert sentence("tool.keep_back", {"quarantine": ""}, {"quarantine": ""}) == "Alice kept task_list back"


@pytest.mark.django_db
def test_an_action_without_words_is_a_sentence_with_its_name(sentence: Any) -> None:
    assert sentence("kite.fly_high") == f"{RECORDED} fly high of kite task_list"
    assert sentence("x") == f"{RECORDED} x of this task_list"


@pytest.mark.django_db
def test_an_entry_of_many_tools_names_the_first(sentence: Any, alice: Membership) -> None:
    names = ["a", "b", "c", "d", "e"]
    several = Tool(organisation_id=alice.organisation_id, name=", ".join(names))
    on, off = ({"tools": names, "is_enabled": value} for value in (True, False))

    text = sentence("tool.disable", on, off, several)

    assert text == "Alice switched a, b, c and 2 more off"


@pytest.mark.django_db
def test_a_member_who_left_has_the_recorded_address_and_the_service_its_name(
    alice: Membership, bob: Membership, in_acme: Organisation
) -> None:
    record("member.add", alice, actor=bob)
    record("member.add", alice, actor=None)
    bob.delete()

    rows = AuditEntry.objects.select_related("actor__user").order_by("pk")
    assert [str(sentence_of(row)).split()[0] for row in rows] == ["bob@example.com", "toolhub"]


@pytest.mark.django_db
def test_what_nobody_can_see_is_an_escape(sentence: Any) -> None:
    text = sentence("tool.keep_back", None, {"quarantine": "two\nlines \u202eback"})

    assert text.removeprefix("Alice kept task_list back: ") == "two lines \\u202eback"


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"limit": 1_000}, {"limit": 20_000}, ["limit 1,000 → 20,000"]),
        ({"is_hard": True}, {"is_hard": False}, ["hard yes → no"]),
        ({"model": ""}, {"model": "gpt"}, ["model none → gpt"]),
        ({"settings": {"a": 1}}, {"settings": {"a": 2}}, ["settings"]),
        ({"tools": ["a", "b"]}, {"tools": ["b", "a"]}, ["order of tools"]),
        ({"a": 1}, {"a": 1}, []),
    ],
)
def test_a_difference_has_short_values_and_only_names_long_ones(before: Any, after: Any, words: list[str]) -> None:
    assert difference(before, after) == words


# -- Pages, the file, REST --------------------------------------------------------------------------------------------


def page(client: Client, query: str = "") -> str:
    return client.get(AUDIT + query).content.decode()


def text_of(parts: Any) -> str:
    async def read() -> str:
        return "".join([part if isinstance(part, str) else part.decode() async for part in parts])

    return async_to_sync(read)()


@pytest.mark.django_db
def test_page_file_and_rest_have_the_same_sentence(client: Client, alice: Membership, rest: Rest) -> None:
    with organisation_scope(alice.organisation):
        set_tool_enabled(make_tool(alice.organisation, "task_list"), False, actor=alice)
    client.force_login(alice.user)

    sent = client.get(AUDIT + "csv/?action=tool.disable")
    assert isinstance(sent, StreamingHttpResponse)
    lines = list(csv.DictReader(text_of(sent).splitlines()))

    assert [line["sentence"] for line in lines] == ["Alice switched task_list off"]
    assert lines[0]["actor"] == "alice@example.com"
    assert rest.get("audit").json["results"][0]["sentence"] == "Alice switched task_list off"
    assert 'Alice switched <a href="/o/acme/tools/task_list/">task_list</a> off' in page(client)


@pytest.mark.django_db
def test_no_cell_of_the_file_is_a_formula(alice: Membership, in_acme: Organisation) -> None:
    alice.user.first_name = "=1+1"
    alice.user.save()
    record("member.add", alice, actor=alice, after={"email": "x"})

    (line,) = csv.DictReader(text_of(csv_parts(in_acme, AuditFilter())).splitlines())

    assert (line["target"], line["sentence"][:5]) == ("'=1+1", "'=1+1")


@pytest.mark.django_db
def test_a_file_of_several_parts_has_every_entry_once(
    alice: Membership, in_acme: Organisation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolhub.tenants.audit.files.PART", 2)
    for _ in range(5):
        record("member.add", alice, actor=alice)

    lines = list(csv.DictReader(text_of(csv_parts(in_acme, AuditFilter())).splitlines()))

    assert [line["number"] for line in lines] == ["5", "4", "3", "2", "1"]


@pytest.mark.django_db
def test_the_history_of_a_thing_is_its_entries_alone(client: Client, alice: Membership, rest: Rest) -> None:
    organisation = alice.organisation
    tool, other = make_tool(organisation, "task_list"), make_tool(organisation, "task_list_2")
    with organisation_scope(organisation), transaction.atomic():
        record("tool.try", tool, actor=alice)
        record("tool.try", other, actor=alice)
    client.force_login(alice.user)

    link = f'href="{AUDIT}?target_id={tool.public_id}"'
    assert link in client.get("/o/acme/tools/task_list/").content.decode()
    shown = page(client, f"?target_id={tool.public_id}")
    entries = shown[shown.index('id="entries"') :]
    assert ("task_list_2" in entries, "History of tool task_list" in " ".join(shown.split())) == (False, True)
    found = rest.get("audit", target_id=str(tool.public_id)).json["results"]
    assert {each["target"] for each in found} == {"task_list"}


@pytest.mark.django_db
def test_a_reader_without_the_right_gets_no_link_to_the_audit(
    client: Client, alice: Membership, bob: Membership
) -> None:
    make_tool(bob.organisation, "task_list")
    client.force_login(bob.user)

    assert "target_id=" not in client.get("/o/acme/tools/task_list/").content.decode()


@pytest.mark.django_db
def test_choices_of_the_filters_are_what_occurs_in_the_own_organisation(
    client: Client, alice: Membership, charlie: Membership
) -> None:
    for member, action in ((alice, "kite.fly"), (charlie, "boat.sail")):
        with organisation_scope(member.organisation), transaction.atomic():
            record(action, member, actor=member)
    client.force_login(alice.user)

    shown = page(client)

    assert '<option value="kite.fly">' in shown
    assert '<option value="alice@example.com">' in shown
    assert "boat.sail" not in shown
    assert "charlie@example.com" not in shown


@pytest.mark.django_db
def test_sentences_of_more_actors_take_no_more_queries(
    client: Client, alice: Membership, bob: Membership, acme: Organisation
) -> None:
    client.force_login(alice.user)
    counts = []
    for actor in (alice, bob, None):
        with organisation_scope(acme), transaction.atomic():
            record("member.add", alice, actor=actor)
        with CaptureQueriesContext(connection) as queries:
            page(client)
        counts.append(len(queries))

    assert len(set(counts)) == 1


@pytest.mark.django_db
@pytest.mark.parametrize(("zone", "found"), [("UTC", 0), ("Pacific/Kiritimati", 1)])
def test_days_of_the_filter_begin_in_the_zone_of_the_page(
    client: Client, alice: Membership, in_acme: Organisation, zone: str, found: int
) -> None:
    Organisation.objects.filter(pk=in_acme.pk).update(time_zone=zone)
    with patch("toolhub.tenants.audit.writes.timezone.now", return_value=datetime(2026, 3, 7, 15, tzinfo=UTC)):
        record("tool.disable", alice, actor=alice)
    client.force_login(alice.user)

    shown = client.get(AUDIT + "?since=2026-03-08&until=2026-03-08").content.decode()
    sent = client.get(AUDIT + "csv/?since=2026-03-08&until=2026-03-08")

    assert len(list(csv.DictReader(text_of(sent).splitlines()))) == found
    assert shown.count('title="8 Mar 2026, 05:00:00') == found
