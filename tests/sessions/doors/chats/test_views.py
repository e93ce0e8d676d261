from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db.models.functions import Now
from django.test import AsyncClient, Client
from django.urls import reverse
from pytest_django import DjangoAssertNumQueries

from capabilities.models import Grant, Role, RoleMembership, RoleRule, Toolkit
from sessions.doors.chats import live, markdown, readers
from sessions.doors.chats.markdown import render_markdown
from sessions.models import ChatSession, LoadedToolkit, Step, StepKind, StepStatus, ToolSet, Turn, TurnStatus
from sessions.turns import accepting, ledger
from sessions.turns.events import Delta, Event
from tests.cast import (
    allow_toolkit,
    make_agent,
    make_member,
    make_role,
    make_session,
    make_tool,
    make_toolkit,
    make_turn,
)
from toolhub.tenants.models import Access, AdminRight, Membership, Right
from toolhub.tenants.rows.cursors import sealed_place
from toolhub.tenants.rows.scope import organisation_scope, system_scope

HTMX = {"HX-Request": "true"}


@pytest.fixture
def session(bob: Membership) -> ChatSession:
    return make_session(bob)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def page_of(session: ChatSession, more: str = "") -> str:
    return f"/o/{session.organisation.slug}/sessions/{session.pk}/{more}"


def turn_url(turn: Turn, more: str = "") -> str:
    return f"/o/acme/turns/{turn.pk}/{more}"


def add_step(turn: Turn, **fields: Any) -> Step:
    with organisation_scope(turn.organisation):
        index = turn.steps.count() + 1
        defaults = {"kind": StepKind.TOOL, "status": StepStatus.DONE, "round": index, "tool_name": "task_add"}
        return Step.objects.create(organisation=turn.organisation, turn=turn, index=index, **(defaults | fields))


def text_of(page: bytes) -> str:
    """What a reader reads: without marks, one space for any."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.decode()))


def delegate(member: Membership, right: Right) -> None:
    with organisation_scope(member.organisation):
        AdminRight.objects.create(organisation=member.organisation, membership=member, right=right)


def test_a_call_that_has_not_begun_waits_and_shows_no_result_and_no_time(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.RUNNING)
    add_step(turn, status=StepStatus.PENDING, tool_name="task_add", arguments='{"title": "milk"}')

    (step,) = re.findall(rb'<li class="step">.*?</li>', as_bob.get(page_of(session)).content, re.DOTALL)

    assert text_of(step).strip() == "task_add Waiting Arguments { &quot;title&quot;: &quot;milk&quot; }"


# -- Home and list ----------------------------------------------------------------------------------------------------


def test_home_offers_the_first_session_where_there_is_none(as_bob: Client, bob: Membership) -> None:
    make_agent(bob.organisation)

    page = as_bob.get("/o/acme/").content

    assert b"Talk to an agent" in page
    assert b'<option value="starter"' in page


def test_opening_a_session_leads_into_it(as_bob: Client, bob: Membership) -> None:
    agent = make_agent(bob.organisation)

    answer = as_bob.post("/o/acme/sessions/", {"agent": agent.slug})

    with organisation_scope(bob.organisation):
        session = ChatSession.objects.get(membership=bob, agent=agent)
    assert (answer.status_code, answer["Location"]) == (302, page_of(session))


@pytest.mark.parametrize("agent", ["", "missing", "theirs", "off", "\x00"])
def test_an_agent_that_is_not_there_opens_nothing(
    as_bob: Client, bob: Membership, charlie: Membership, agent: str
) -> None:
    make_agent(bob.organisation)
    make_agent(bob.organisation, slug="off", is_enabled=False)
    make_agent(charlie.organisation, slug="theirs")

    answer = as_bob.post("/o/acme/sessions/", {"agent": agent})

    assert answer.status_code == 422
    assert b'id="id_agent_error"' in answer.content
    with system_scope():
        assert ChatSession.objects.count() == 0


def test_viewers_read_and_open_nothing(client: Client, session: ChatSession) -> None:
    viewer = make_member(session.organisation, "vera", Access.VIEWER)
    client.force_login(viewer.user)

    assert client.get("/o/acme/").status_code == 200
    assert b"New session" not in client.get("/o/acme/sessions/").content
    assert client.post("/o/acme/sessions/", {"agent": "starter"}).status_code == 403


def test_members_see_their_own_sessions_and_who_has_the_right_sees_all(
    as_bob: Client, alice: Membership, bob: Membership
) -> None:
    make_session(alice, title="Of Alice")
    make_session(bob, title="Of Bob")

    own = text_of(as_bob.get("/o/acme/sessions/?whose=all").content)
    delegate(bob, Right.SESSIONS)
    everybody = text_of(as_bob.get("/o/acme/sessions/?whose=all").content)

    assert "Of Bob" in own
    assert "Of Alice" not in own
    assert "Everybody's" not in own
    assert "Of Alice" in everybody


def test_older_sessions_are_a_page_away(as_bob: Client, bob: Membership) -> None:
    for number in range(31):
        make_session(bob, title=f"Number {number:02}")

    first = as_bob.get("/o/acme/sessions/").content.decode()
    older = re.search(r'href="(\?after=[^"]+)"', first)
    assert older is not None
    second = as_bob.get(f"/o/acme/sessions/{older[1]}").content.decode()

    assert re.findall(r"Number \d\d", first) == [f"Number {number:02}" for number in range(30, 0, -1)]
    assert re.findall(r"Number \d\d", second) == ["Number 00"]


@pytest.mark.parametrize("place", ["x", "2026-01-01_x", ["x", "y"], "9" * 500, "\x00"])
def test_a_place_that_no_page_wrote_is_harmless(as_bob: Client, session: ChatSession, place: str | list[str]) -> None:
    text = place if isinstance(place, str) else sealed_place(place)

    assert as_bob.get("/o/acme/sessions/", {"after": text}).status_code == 200


@pytest.mark.parametrize("count", [1, 3])
def test_the_list_takes_the_same_queries_for_one_and_three(
    as_bob: Client, bob: Membership, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    for _ in range(count):
        make_turn(make_session(bob))

    with django_assert_num_queries(11):  # one of them for the member's saved filters
        as_bob.get("/o/acme/sessions/")


# -- One session ------------------------------------------------------------------------------------------------------


def test_a_turn_shows_its_message_steps_answer_and_usage(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(
        session, "Add a task", status=TurnStatus.DONE, answer="It is **there**.", rounds=2, input_tokens=2310,
        cached_tokens=1900, output_tokens=118,
    )  # fmt: skip
    add_step(
        turn, kind=StepKind.MODEL, tool_calls=[{"id": "1", "name": "task_add", "arguments": "{}"}], text="Now.",
        input_tokens=2310, cached_tokens=1900, output_tokens=118,
    )  # fmt: skip
    add_step(turn, display="Adding task: milk", arguments='{"title":"milk"}', result='{"number":1}')

    page = as_bob.get(page_of(session)).content

    assert b"<strong>there</strong>" in page
    text = text_of(page)
    assert "Adding task: milk" in text
    assert "{ &quot;title&quot;: &quot;milk&quot; }" in text
    assert "2,310 in, 1,900 of it cached · 118 out" in text
    assert text.count("2,310") == 1


def test_the_side_lists_the_tools_of_the_next_turn(as_bob: Client, session: ChatSession) -> None:
    make_tool(session.organisation, "calculator")
    make_tool(session.organisation, "uuid")
    make_role(session.organisation, session.membership)

    page = as_bob.get(page_of(session)).content

    assert b'href="/o/acme/tools/calculator/"' in page
    assert "2 tools · " in text_of(page)


def test_the_page_shows_the_last_twenty_turns_and_a_way_back(as_bob: Client, session: ChatSession) -> None:
    for number in range(1, 23):
        make_turn(session, f"Question {number:02}.", status=TurnStatus.DONE, answer="Yes.")

    last = as_bob.get(page_of(session)).content.decode()
    earlier = as_bob.get(page_of(session, "?before=3")).content.decode()

    assert "?before=3" in last
    assert re.findall(r"Question (\d\d)\.</div>", last) == [f"{number:02}" for number in range(3, 23)]
    assert re.findall(r"Question (\d\d)\.</div>", earlier) == ["01", "02"]
    assert 'id="composer"' not in earlier


def test_no_two_things_on_a_session_page_have_one_id(as_bob: Client, session: ChatSession) -> None:
    make_turn(session, "Hello.", status=TurnStatus.DONE, answer="Yes.")

    ids = re.findall(r'\sid="([^"]*)"', as_bob.get(page_of(session)).content.decode())

    assert "None" not in ids
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("before", ["x", "0", "-1", "99999999999999999999"])
def test_a_place_that_is_no_number_is_harmless(as_bob: Client, session: ChatSession, before: str) -> None:
    assert as_bob.get(page_of(session), {"before": before}).status_code == 200


@pytest.mark.parametrize("count", [1, 3])
def test_a_session_takes_the_same_queries_for_one_and_three_turns(
    as_bob: Client, session: ChatSession, count: int, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_tool(session.organisation, "calculator")
    make_role(session.organisation, session.membership)
    with organisation_scope(session.organisation):
        sent = ToolSet.objects.create(
            organisation=session.organisation, sha256="0", wire="[]", tokens=1, version_ids=[1]
        )
    for _ in range(count):
        turn = make_turn(session, status=TurnStatus.DONE, answer="Yes.")
        for _ in range(count):
            add_step(turn)
            add_step(turn, kind=StepKind.MODEL, tool_set=sent)

    with django_assert_num_queries(15):  # one of them for the budgets, once a registry version
        as_bob.get(page_of(session))


def test_text_from_outside_is_shown_and_never_run(as_bob: Client, session: ChatSession) -> None:
    bad = "<img src=x onerror=alert(1)><script>alert(1)</script><a hx-get=/ href='javascript:alert(1)'>x</a>"
    turn = make_turn(session, bad, status=TurnStatus.DONE, answer=bad, error_message=bad)
    add_step(turn, tool_name=bad, display=bad, arguments=bad, result=bad)
    add_step(turn, kind=StepKind.NOTE, text=bad)
    add_step(turn, kind=StepKind.MODEL, text=bad + "!", tool_calls=[{"id": bad, "name": bad, "arguments": bad}])
    make_turn(session, bad, status=TurnStatus.FAILED, error_code="x", error_message=bad)
    with organisation_scope(session.organisation):
        ChatSession.objects.update(title=bad)

    page = as_bob.get(page_of(session)).content.decode()

    assert "&lt;script&gt;" in page
    assert "<script>" not in page
    assert not re.search(r"<(img src=x|a hx-get)", page)


def test_long_results_are_cut_until_asked_for(as_bob: Client, session: ChatSession) -> None:
    step = add_step(make_turn(session, status=TurnStatus.DONE), result="a" * 5_000 + "END")

    page = as_bob.get(page_of(session)).content.decode()
    link = turn_url(step.turn, f"steps/{step.index}/")
    whole = as_bob.get(link).content.decode()
    partial = as_bob.get(link, headers=HTMX).content.decode()

    assert "END" not in page
    assert f'href="{link}"' in page
    assert f'hx-get="{link}"' in page
    assert "END" in whole
    assert "END" in partial
    assert "<html" not in partial


def test_a_failed_turn_says_why_and_offers_to_send_it_again(as_bob: Client, session: ChatSession) -> None:
    make_turn(session, "Again?", status=TurnStatus.FAILED, error_code="provider_error", error_message="It broke.")

    page = as_bob.get(page_of(session)).content

    assert "It broke. provider_error Send again" in text_of(page)


def test_sessions_of_others_are_missing_until_the_right_says_otherwise(
    as_bob: Client, alice: Membership, bob: Membership
) -> None:
    session = make_session(alice, title="Of Alice")

    hidden = as_bob.get(page_of(session))
    delegate(bob, Right.SESSIONS)
    shown = as_bob.get(page_of(session))

    assert hidden.status_code == 404
    assert shown.status_code == 200
    assert b"This is Alice's session" in shown.content.replace(b"&#x27;", b"'")
    assert b'id="composer"' not in shown.content


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize(
    "path",
    [
        "sessions/{s}/",
        "sessions/{s}/turns/",
        "turns/{t}/",
        "turns/{t}/cancel/",
        "turns/{t}/stream",
        "turns/{t}/steps/1/",
    ],
)
def test_another_organisations_rows_look_like_missing_ones(
    client: Client, charlie: Membership, session: ChatSession, path: str, method: str
) -> None:
    turn = make_turn(session)
    add_step(turn)
    client.force_login(charlie.user)
    missing = {"s": uuid.uuid4(), "t": uuid.uuid4()}

    answers = [
        getattr(client, method)(f"/o/{org}/{path.format(**keys)}", {"message": "x"})
        for org in ("globex", "acme")
        for keys in ({"s": session.pk, "t": turn.pk}, missing)
    ]

    assert len({(answer.status_code, text_of(answer.content)) for answer in answers[:2]}) == 1
    assert all(answer.status_code in (404, 405) for answer in answers)
    with organisation_scope(session.organisation):
        turn.refresh_from_db()
        assert turn.cancel_requested_at is None
        assert Turn.objects.count() == 1


def test_pages_without_a_login_are_the_login_page(client: Client, session: ChatSession) -> None:
    turn = make_turn(session)

    for url in (page_of(session), turn_url(turn), turn_url(turn, "stream"), turn_url(turn, "steps/1/")):
        answer = client.get(url)
        assert (answer.status_code, answer["Location"]) == (302, f"/accounts/login/?next={url}")


# -- Sending and stopping ---------------------------------------------------------------------------------------------


def test_a_message_without_script_leads_back_to_its_turn(as_bob: Client, session: ChatSession) -> None:
    answer = as_bob.post(page_of(session, "turns/"), {"message": "Hello\r\nthere"})

    with organisation_scope(session.organisation):
        turn = session.turns.get()
    assert (answer.status_code, answer["Location"]) == (302, f"{page_of(session)}#turn-{turn.pk}")
    assert (turn.message, turn.status, turn.membership_id) == ("Hello\nthere", "queued", session.membership_id)


def test_a_message_with_htmx_adds_its_turn_and_empties_the_field(as_bob: Client, session: ChatSession) -> None:
    answer = as_bob.post(page_of(session, "turns/"), {"message": "Hello"}, headers=HTMX)

    page = answer.content.decode()
    with organisation_scope(session.organisation):
        turn = session.turns.get()
    assert "<html" not in page
    assert 'id="turns" hx-swap-oob="beforeend"' in page
    assert f'sse-connect="{turn_url(turn, "stream")}"' in page
    assert "<title>Hello · toolhub</title>" in page
    assert "Hello" not in page.split("<form")[1].split("</form>")[0]
    assert 'hx-swap-oob="true">Hello</h1>' in page


@pytest.mark.parametrize("headers", [HTMX, {}])
def test_the_quick_question_button_sends_the_message_without_tools(
    as_bob: Client, session: ChatSession, headers: dict[str, str]
) -> None:
    composer = as_bob.get(page_of(session)).content.decode()
    as_bob.post(page_of(session, "turns/"), {"message": "hello", "without_tools": "1"}, headers=headers)
    page = text_of(as_bob.get(page_of(session)).content)

    assert re.search(r'<button type="submit"\s+name="without_tools"\s+value="1"', composer)
    assert "Quick question: sent without tools" in page
    with system_scope():
        assert Turn.objects.get().without_tools


@pytest.mark.parametrize(("message", "complaint"), [("", "Write a message first."), (" \n ", "Write a message first."),
    ("x" * 100_001, "Ensure this value has at most 100000 characters"), ("a\x00b", "Null characters")])  # fmt: skip
def test_a_message_that_cannot_be_says_so_beside_the_field(
    as_bob: Client, session: ChatSession, message: str, complaint: str
) -> None:
    partial = as_bob.post(page_of(session, "turns/"), {"message": message}, headers=HTMX)
    page = as_bob.post(page_of(session, "turns/"), {"message": message})

    for answer in (partial, page):
        assert answer.status_code == 422
        assert complaint in answer.content.decode()
    assert b"<html" not in partial.content
    assert b"<html" in page.content
    with organisation_scope(session.organisation):
        assert session.turns.count() == 0


def test_what_the_ledger_refuses_keeps_the_text(
    as_bob: Client, session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise ledger.Conflict("agent_disabled", "The agent Starter is switched off.")

    monkeypatch.setattr(accepting, "accept", refuse)

    answer = as_bob.post(page_of(session, "turns/"), {"message": "Keep me"}, headers=HTMX)

    assert answer.status_code == 422
    assert b"The agent Starter is switched off." in answer.content
    assert b"Keep me</textarea>" in answer.content


def test_a_second_click_is_not_a_second_message(as_bob: Client, session: ChatSession) -> None:
    form = {"message": "Once", "key": str(uuid.uuid4())}

    first = as_bob.post(page_of(session, "turns/"), form, headers=HTMX)
    second = as_bob.post(page_of(session, "turns/"), form, headers=HTMX)

    assert b'id="turns"' in first.content
    assert b'id="turns"' not in second.content
    with organisation_scope(session.organisation):
        assert session.turns.count() == 1


def test_only_its_member_writes_into_a_session(client: Client, alice: Membership, session: ChatSession) -> None:
    client.force_login(alice.user)

    answer = client.post(page_of(session, "turns/"), {"message": "Hello"})

    assert answer.status_code == 403
    assert b"Only its member writes into a session" in answer.content


def test_stop_ends_a_waiting_turn(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session)

    partial = as_bob.post(turn_url(turn, "cancel/"), headers=HTMX)
    page = as_bob.post(turn_url(turn, "cancel/"))

    assert "Cancelled" in text_of(partial.content)
    assert b"<html" not in partial.content
    assert page["Location"] == f"{page_of(session)}#turn-{turn.pk}"
    with organisation_scope(session.organisation):
        turn.refresh_from_db()
        assert turn.status == TurnStatus.CANCELLED


def test_a_running_turn_that_was_asked_to_stop_says_so(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.RUNNING)

    partial = as_bob.post(turn_url(turn, "cancel/"), headers=HTMX).content

    assert "Stopping" in text_of(partial)
    assert b"cancel/" not in partial


@pytest.mark.parametrize("more", ["", "stream", "steps/1/"])
def test_reading_is_get_alone(as_bob: Client, session: ChatSession, more: str) -> None:
    assert as_bob.post(turn_url(make_turn(session), more)).status_code == 405


@pytest.mark.parametrize("path", ["turns/", ""])
def test_writing_is_post_alone(as_bob: Client, session: ChatSession, path: str) -> None:
    turn = make_turn(session)

    assert as_bob.get(page_of(session, "turns/")).status_code == 405
    assert as_bob.get(turn_url(turn, "cancel/")).status_code == 405


def test_one_turn_alone_is_its_partial_or_its_place_in_the_session(as_bob: Client, session: ChatSession) -> None:
    turn = make_turn(session)

    partial = as_bob.get(turn_url(turn), headers=HTMX)
    page = as_bob.get(turn_url(turn))

    assert b"<html" not in partial.content
    assert page["Location"] == f"{page_of(session)}?before=2#turn-{turn.pk}"


def test_a_turn_behind_another_polls_and_the_first_one_streams(as_bob: Client, session: ChatSession) -> None:
    """Browsers open six connections to a host: a queue of turns must not take them all."""
    first, second = make_turn(session, status=TurnStatus.RUNNING), make_turn(session)

    page = as_bob.get(page_of(session)).content.decode()
    polled = as_bob.get(turn_url(second), headers=HTMX).content.decode()
    with organisation_scope(session.organisation):
        Turn.objects.filter(pk=first.pk).update(status=TurnStatus.DONE, ended_at=Now())
    then = as_bob.get(turn_url(second), headers=HTMX).content.decode()

    assert re.findall(r'sse-connect="([^"]+)"', page) == [turn_url(first, "stream")]
    assert re.findall(r'hx-get="([^"]+/turns/[^"]+)"', page) == [turn_url(second)]
    assert "Waiting for the previous turn" in page
    assert 'hx-trigger="every 2s"' in polled
    assert f'sse-connect="{turn_url(second, "stream")}"' in then
    assert "hx-trigger" not in then


# -- Live -------------------------------------------------------------------------------------------------------------

Read = Callable[[Turn], list[tuple[str, str]]]


@pytest.fixture
def read_stream(as_bob: Client) -> Read:
    """All events of a turn's stream as Bob's browser gets them: (event, data)."""

    async def read(turn: Turn) -> list[tuple[str, str]]:
        browser = AsyncClient()
        browser.cookies = as_bob.cookies
        answer = await browser.get(turn_url(turn, "stream"))
        assert answer["Content-Type"] == "text/event-stream"
        assert answer["Cache-Control"] == "no-store"
        text = "".join([part.decode() async for part in answer.streaming_content])  # type: ignore[attr-defined]
        blocks = [block.split("\n") for block in text.split("\n\n") if block.startswith("event: ")]
        return [
            (lines[0].removeprefix("event: "), "\n".join(line.removeprefix("data: ") for line in lines[1:]))
            for lines in blocks
        ]

    return async_to_sync(read)


def script(monkeypatch: pytest.MonkeyPatch, *items: Any) -> None:
    """Let the turn's events be these; a function among them is called in its place."""

    async def watch(turn_id: uuid.UUID, organisation_id: int, *, after: int = 0, read: int = 0) -> Any:
        for item in items:
            yield await item() if callable(item) else item

    monkeypatch.setattr(live, "watch", watch)


def test_the_stream_of_an_ended_turn_is_its_end(read_stream: Read, session: ChatSession) -> None:
    turn = make_turn(session, status=TurnStatus.DONE, answer="Two\n\nparagraphs")

    [(event, html)] = read_stream(turn)

    assert event == "done"
    assert "<p>Two</p>\n<p>paragraphs</p>" in html


@pytest.mark.parametrize("status", [TurnStatus.DONE, TurnStatus.FAILED, TurnStatus.CANCELLED])
def test_the_stream_of_an_ended_turn_has_the_forms_of_its_page_with_their_tokens(
    as_bob: Client, read_stream: Read, session: ChatSession, status: TurnStatus
) -> None:
    turn = make_turn(session, status=status, answer="Two")
    as_bob.get(page_of(session))  # the cookie of forms
    token = re.compile(r'(name="csrfmiddlewaretoken" value=)"\w{64}"')
    polled = as_bob.get(turn_url(turn), headers=HTMX).content.decode()

    [(_, html)] = read_stream(turn)

    assert len(token.findall(html)) == html.count("<form") > 0
    assert token.sub(r"\1", html).strip() in token.sub(r"\1", polled)


def test_the_stream_sends_the_partial_of_each_change_and_the_text_being_written(
    read_stream: Read, session: ChatSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = make_turn(session, status=TurnStatus.RUNNING, last_event=1)

    async def end() -> Event:
        with organisation_scope(session.organisation):
            await Turn.objects.filter(pk=turn.pk).aupdate(status=TurnStatus.DONE, answer="Done.", last_event=2)
        return Event(2, "done", {})

    script(monkeypatch, Event(1, "accepted", {}), None, Delta(1, 0, "a <b>\nc"), end, Event(3, "never", {}))

    events = read_stream(turn)

    assert [event for event, _ in events] == ["turn", "delta", "done"]
    assert "Working" in events[0][1]
    assert events[1][1] == "<span>a &lt;b&gt;\nc</span>"
    assert "<p>Done.</p>" in events[2][1]


@pytest.mark.parametrize("loss", ["membership", "login", "account"])
def test_the_stream_ends_when_its_reader_may_read_no_more(
    read_stream: Read, as_bob: Client, session: ChatSession, monkeypatch: pytest.MonkeyPatch, loss: str
) -> None:
    turn = make_turn(session, status=TurnStatus.RUNNING)
    bob = session.membership

    async def lose() -> None:
        with system_scope():
            if loss == "membership":
                await Turn.objects.filter(pk=turn.pk).aupdate(membership=alice)
                await ChatSession.objects.filter(pk=session.pk).aupdate(membership=alice)
                await Membership.objects.filter(pk=bob.pk).adelete()
            elif loss == "login":
                await as_bob.session.aflush()
            else:
                bob.user.is_active = False
                await bob.user.asave()

    alice = make_member(session.organisation, "alice", Access.ADMIN)
    monkeypatch.setattr(readers, "CHECK_EVERY", 0.0)
    script(monkeypatch, None, lose, Delta(1, 0, "secret"), Delta(1, 6, "secret"))

    events = read_stream(turn)

    assert [event for event, _ in events] == ["turn"]


def test_the_stream_reads_a_real_turn_to_its_end(read_stream: Read, session: ChatSession) -> None:
    with organisation_scope(session.organisation):
        turn = accepting.accept(session, "Hello", member=session.membership).turn
        ledger.cancel(turn, actor=session.membership)

    events = read_stream(turn)

    assert [event for event, _ in events] == ["done"]


# -- Markdown ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("**a** `b`", "<p><strong>a</strong> <code>b</code></p>\n"),
        ("<b>a</b>", "<p>&lt;b&gt;a&lt;/b&gt;</p>\n"),
        ("[a](javascript:alert(1))", "<p>[a](javascript:alert(1))</p>\n"),
        ("a\n\nb", "<p>a</p>\n<p>b</p>\n"),
        ("```Python x=1\n<b>\n```", '<pre data-language="python"><code>&lt;b&gt;\n</code></pre>\n'),
        ('```"><script>\na\n```', "<pre><code>a\n</code></pre>\n"),
        ("    a", "<pre><code>a\n</code></pre>\n"),
    ],
)
def test_markdown_is_rendered_and_html_is_text(text: str, html: str) -> None:
    assert render_markdown(text) == html


def test_a_list_of_tasks_has_boxes_that_nobody_can_tick_and_a_list_of_other_brackets_none() -> None:
    html = render_markdown("- [x] **a**\n- [ ] b\n- [c] d\n- <input> e")

    boxes = re.findall(r"<input[^>]*>", html)
    assert [("checked" in box, "disabled" in box, 'type="checkbox"' in box) for box in boxes] == [
        (True, True, True),
        (False, True, True),
    ]
    assert re.findall(r'aria-label="([^"]*)"', html) == ["Done", "Not done"]
    assert "[c] d" in html


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("so $x_1 * y_2 * z_3$ is", ["$x_1 * y_2 * z_3$"]),
        (r"so \(a_1 b_1\) and \[ c_1 * d * e_1 \]", [r"\(a_1 b_1\)", r"\[ c_1 * d * e_1 \]"]),
        ("so\n$$\na\n= b_1\n- c_1 < d\n$$\nis", ["$$\na\n= b_1\n- c_1 &lt; d\n$$"]),
        ("- \\[ a\n  - b\n  \\]", ["\\[ a\n- b\n\\]"]),
        ("from $5 to $6, US$7, $8-$9 and $", []),
        ("`$a_1$` costs $`b`$", []),
        ("[$a](https://x.example)$", []),
        ("$$ without an end\n\n- a_1", []),
    ],
)
def test_a_formula_stays_as_it_was_written_and_a_price_is_none(text: str, formulas: list[str]) -> None:
    html = render_markdown(text)

    assert re.findall(r'class="formula">(.*?)</(?:p|span)>', html, re.DOTALL) == formulas


def test_pictures_are_not_loaded_and_links_say_where_they_lead() -> None:
    html = render_markdown("![x](https://evil.example/?q=1) [your bank](https://evil.example/a)")

    assert "<img" not in html
    assert html.count('<span class="link-host">(evil.example)</span>') == 2
    assert html.count('rel="noopener noreferrer nofollow"') == 2


def test_a_link_that_is_its_own_text_is_left_alone() -> None:
    assert "link-host" not in render_markdown("<https://example.org/a>")


def test_an_answer_beyond_the_limit_is_shown_as_plain_text() -> None:
    html = render_markdown("**a**\n\n" * 3_000 + "**<end>**")

    assert html.startswith("<p><strong>a</strong></p>")
    assert html.endswith("**a**\n\n**&lt;end&gt;**</div>")
    assert html.count("<strong>") == markdown.MAX_MARKDOWN // 7


def test_an_answer_within_the_limit_is_markdown_to_its_end() -> None:
    html = render_markdown("**a**\n\n" * 2_800)

    assert (html.count("<strong>"), html.count("plain")) == (2_800, 0)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were handed to the renderer."""
    texts: list[str] = []
    render = markdown._markdown.render
    monkeypatch.setattr(markdown._markdown, "render", lambda text: texts.append(text) or render(text))  # type: ignore[func-returns-value]
    return texts


def test_a_page_of_hostile_answers_hands_few_characters_to_the_renderer(
    as_bob: Client, session: ChatSession, parsed: list[str]
) -> None:
    for number in range(20):
        turn = make_turn(session, status=TurnStatus.DONE, answer="[" * 30_000 + f"end {number}.")
    for number in range(10):
        add_step(turn, kind=StepKind.MODEL, text=f"{number}" + "|a" * 10_000)

    page = as_bob.get(page_of(session)).content.decode()

    assert sum(map(len, parsed)) == markdown.MAX_MARKDOWN_OF_PAGE
    assert max(map(len, parsed)) == markdown.MAX_MARKDOWN
    assert [f"end {number}." in page for number in range(20)] == [True] * 20
    parsed.clear()
    assert b"end 19." in as_bob.get(turn_url(turn), headers=HTMX).content
    assert sum(map(len, parsed)) == markdown.MAX_MARKDOWN_OF_PAGE


def test_the_last_answers_of_a_long_page_are_markdown(as_bob: Client, session: ChatSession) -> None:
    for number in range(5):
        make_turn(session, status=TurnStatus.DONE, answer=f"**number {number}**\n\n" + "word " * 4_000)

    page = as_bob.get(page_of(session)).content.decode()

    assert [f"<strong>number {number}</strong>" in page for number in range(5)] == [False, False, True, True, True]
    assert "**number 0**" in page


# -- Who may use nothing ----------------------------------------------------------------------------------------------

NOTHING = "You cannot use any tool yet"


@pytest.mark.parametrize("rules", ["no role", "mode none", "nothing listed", "denies alone"])
def test_the_chat_shows_a_member_without_tools_where_to_request_access(
    as_bob: Client, session: ChatSession, rules: str
) -> None:
    tool = make_tool(session.organisation, "calculator")
    with organisation_scope(session.organisation):
        if rules != "no role":
            mode = "none" if rules == "mode none" else "listed"
            role = Role.objects.create(organisation=session.organisation, slug="r", name="R", mode=mode)
            RoleMembership.objects.create(organisation=session.organisation, role=role, membership=session.membership)
            if rules == "denies alone":
                RoleRule.objects.create(
                    organisation=session.organisation, role=role, category=tool.category, effect="deny"
                )

    for path in ("/o/acme/", page_of(session), "/o/acme/tools/"):
        page = as_bob.get(path).content.decode()
        assert (NOTHING in page, "/o/acme/access-requests/#ask" in page) == (True, True), path


@pytest.mark.parametrize("opened", ["role", "rule", "grant"])
def test_who_may_use_something_is_not_told_so(as_bob: Client, session: ChatSession, opened: str) -> None:
    own = {"organisation": session.organisation}
    tool = make_tool(session.organisation, "calculator")
    with organisation_scope(session.organisation):
        if opened == "grant":
            Grant.objects.create(**own, membership=session.membership, tool=tool, effect="allow")
        else:
            role = Role.objects.create(**own, slug="r", name="R", mode="all" if opened == "role" else "listed")
            RoleMembership.objects.create(**own, role=role, membership=session.membership)
            RoleRule.objects.create(**own, role=role, category=tool.category, effect="allow")

    for path in ("/o/acme/", page_of(session), "/o/acme/tools/"):
        assert NOTHING not in as_bob.get(path).content.decode(), path


def test_a_session_of_somebody_else_says_nothing_of_oneself(
    client: Client, alice: Membership, session: ChatSession
) -> None:
    client.force_login(alice.user)

    answer = client.get(page_of(session))

    assert (answer.status_code, NOTHING in answer.content.decode()) == (200, False)


def test_a_session_that_is_opened_with_a_toolkit_has_it_loaded_or_says_why_not(as_bob: Client, bob: Membership) -> None:
    agent = make_agent(bob.organisation)
    make_role(bob.organisation, bob)
    for name in ("garden", "attic"):
        make_toolkit(bob.organisation, name, make_tool(bob.organisation, f"{name}_rake"))
    with organisation_scope(bob.organisation):
        allow_toolkit(agent, Toolkit.objects.get(name="garden"))
    address = reverse("session_list", args=["acme"])

    pages = [
        as_bob.post(address, {"agent": agent.slug, "toolkit": name}, follow=True).content.decode()
        for name in ("garden", "attic")
    ]

    with organisation_scope(bob.organisation):
        assert list(LoadedToolkit.objects.values_list("toolkit__name", flat=True)) == ["garden"]
    assert ["notice is-error" in page for page in pages] == [False, True]
