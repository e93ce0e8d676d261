"""The bolt of a chat: tools on or off for this session, until somebody switches it again."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from capabilities.models import Agent
from sessions.models import ChatSession, Door, Turn, TurnStatus
from sessions.selection.queries import selection_preview
from sessions.turns import accepting
from tests.cast import give_tool, make_agent, make_role, make_session, make_tool
from tests.rest import Rest
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.loads import carried
from tests.sessions.run_turns import accept, run
from toolhub.tenants.models import ApiToken, Membership
from toolhub.tenants.rows.scope import organisation_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def agent(bob: Membership, provider: ScriptedOpenAI) -> Agent:
    agent = make_agent(bob.organisation, provider.url, starts_with_core=False)
    give_tool(agent, make_tool(bob.organisation))
    make_role(bob.organisation, bob)
    return agent


@pytest.fixture
def session(bob: Membership, agent: Agent) -> ChatSession:
    return make_session(bob, agent)


@pytest.fixture
def as_bob(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def switch(client: Client, session: ChatSession, off: bool, **headers: str) -> bytes:
    url = reverse("session_tools_switch", args=["acme", session.pk])
    return client.post(url, {"tools_off": "1" if off else "0"}, headers=headers).content


def fresh(session: ChatSession) -> ChatSession:
    with organisation_scope(session.organisation_id):
        return ChatSession.objects.select_related("agent__model__provider", "membership").get(pk=session.pk)


@pytest.mark.django_db(transaction=True)
def test_the_tools_switch_stays_off_until_it_is_switched_on(
    as_bob: Client, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    switch(as_bob, session, off=True)
    turns = [run(fresh(session), "What is 2 + 2?") for _ in range(2)]
    switch(as_bob, session, off=False)
    turns.append(run(fresh(session), "What is 2 + 2?"))

    assert [turn.without_tools for turn in turns] == [True, True, False]
    assert [carried(request) for request in provider.requests] == [[], [], ["calculator"]]


def test_a_turn_that_waits_keeps_what_it_was_sent_with(as_bob: Client, session: ChatSession) -> None:
    turn = accept(session)
    switch(as_bob, session, off=True)

    with organisation_scope(session.organisation_id):
        turn.refresh_from_db()
    assert turn.without_tools is False


@pytest.mark.parametrize("off", [True, False])
def test_a_message_that_is_sent_again_under_its_key_is_the_same_turn_after_the_switch(
    as_bob: Client, session: ChatSession, bob: Membership, off: bool
) -> None:
    def post() -> str:
        message = {"message": "What is 2 + 2?"}
        return str(Rest(bob).post(f"sessions/{session.pk}/turns", message, headers={"Idempotency-Key": "k"}).json["id"])

    switch(as_bob, session, not off)
    first = post()
    switch(as_bob, session, off)

    assert post() == first


def test_a_turn_says_whether_it_was_a_quick_question_or_its_session_had_the_tools_off(
    as_bob: Client, session: ChatSession, bob: Membership
) -> None:
    off, quick = "Tools were off in this session", "Quick question: sent without tools"
    switch(as_bob, session, off=True)
    with organisation_scope(session.organisation_id):
        turns = [
            accepting.accept(fresh(session), "What?", member=bob, without_tools=asked).turn for asked in (False, True)
        ]
        Turn.objects.update(status=TurnStatus.FAILED)
    page = as_bob.get(reverse("session_detail", args=["acme", session.pk])).content.decode()
    first, second = (page.split(f'id="turn-{turn.pk}"')[1].split("</article>")[0] for turn in turns)
    told = [Rest(bob).get(f"turns/{turn.pk}").json for turn in turns]

    assert [(each["without_tools"], each["tools_off"]) for each in told] == [(True, True), (True, False)]
    assert ([text in first for text in (off, quick)], [text in second for text in (off, quick)]) == (
        [True, False],
        [False, True],
    )
    # What is sent again goes by the switch as it is then, a quick question is one again.
    assert ['name="without_tools"' in each for each in (first, second)] == [False, True]


def test_schedules_and_clients_of_the_gateway_keep_their_tools(session: ChatSession, bob: Membership) -> None:
    with organisation_scope(session.organisation_id):
        ChatSession.objects.update(tools_off=True)
        off = fresh(session)
        token = ApiToken.objects.create(organisation=bob.organisation, membership=bob, name="app", digest="d")
        asks = accepting.ClientAsks(Door.CHAT, token, "digest")
        scheduled = accepting.accept(off, "Look.", member=bob, origin_key="schedule:1").turn
        asked = accepting.accept(off, "Look.", member=bob, asks=asks).turn

    assert (scheduled.without_tools, asked.without_tools) == (False, False)


def test_it_is_read_and_set_over_rest_by_its_own_member_alone(
    session: ChatSession, bob: Membership, alice: Membership, charlie: Membership
) -> None:
    path = f"sessions/{session.pk}"

    reply = Rest(bob).patch(path, {"tools_off": True})

    assert (reply.status, reply.json["tools_off"], fresh(session).tools_off) == (200, True, True)
    assert Rest(bob).get(path).json["tools_off"] is True
    assert [Rest(each).patch(path, {"tools_off": False}).status for each in (alice, charlie)] == [403, 404]
    assert Rest(bob).patch(path, {"tools_off": "perhaps"}).status == 400
    assert fresh(session).tools_off is True


def test_nobody_else_switches_it_on_its_page(
    session: ChatSession, alice: Membership, charlie: Membership, client: Client
) -> None:
    statuses = []
    for member in (alice, charlie):
        client.force_login(member.user)
        url = reverse("session_tools_switch", args=["acme", session.pk])
        statuses.append(client.post(url, {"tools_off": "1"}).status_code)

    assert (statuses, fresh(session).tools_off) == ([403, 404], False)


def test_page_chip_explain_and_previews_say_that_tools_are_off(
    as_bob: Client, session: ChatSession, bob: Membership
) -> None:
    part = switch(as_bob, session, True, **{"HX-Request": "true"}).decode()
    page = as_bob.get(reverse("session_detail", args=["acme", session.pk])).content.decode()
    explained = Rest(bob).get(f"explain?session={session.pk}").json
    explain_page = as_bob.get(f"{reverse('explain', args=['acme'])}?session={session.pk}").content.decode()
    told = Rest(bob).get(f"sessions/{session.pk}/tools").json
    by_client = Rest(bob).get(f"explain?session={session.pk}&client=true").json

    for text in (part, page):
        assert 'aria-pressed="false"' in text
        assert "Tools off" in text
        assert "Tools are off in this session" in text
        assert "none of these is sent" in text
    assert (explained["tools_off"], "Tools are off in this session" in explain_page) == (True, True)
    assert (by_client["tools_off"], "would send" in explain_page) == (False, True)
    assert (told["tools"], told["tokens"]) == ([], 0)
    with organisation_scope(session.organisation_id):
        assert selection_preview(fresh(session)).tools == ()
    assert 'aria-pressed="true"' in switch(as_bob, session, False, **{"HX-Request": "true"}).decode()
