"""Files of messages on the page of a session: sent by a plain form, shown with their turn, and sent again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from capabilities.contract.attachments import MAX_ATTACHED
from sessions.models import ChatSession, StepFile, Turn, TurnStatus
from sessions.turns import files
from tests.cast import make_session
from tests.pictures import png
from tests.scripted_openai import ScriptedOpenAI
from tests.sessions.run_turns import work
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def page(client: Client, bob: Membership) -> Client:
    client.force_login(bob.user)
    return client


def post(page: Client, session: ChatSession, *uploads: tuple[str, bytes], htmx: bool = False, **fields: Any) -> Any:
    sent = [SimpleUploadedFile(name, content) for name, content in uploads]
    headers = {"HX-Request": "true"} if htmx else {}
    body = {"message": "look", "files_sent": sent, **fields}
    return page.post(f"/o/acme/sessions/{session.pk}/turns/", body, headers=headers)


def rows(session: ChatSession) -> list[tuple[int, str]]:
    with system_scope():
        files_of = StepFile.objects.filter(turn__session=session).order_by("turn__seq", "place")
        return list(files_of.values_list("turn__seq", "name"))


def end(session: ChatSession) -> Turn:
    with system_scope():
        Turn.objects.filter(session=session).update(status=TurnStatus.DONE, answer="Red.")
        return Turn.objects.filter(session=session).latest("seq")


def shown(page: Client, session: ChatSession, more: str = "") -> str:
    return page.get(f"/o/acme/sessions/{session.pk}/{more}").content.decode()


@pytest.mark.parametrize("htmx", [False, True])
def test_a_form_sends_files_and_the_turn_shows_them(page: Client, bob: Membership, htmx: bool) -> None:
    session = make_session(bob)

    answer = post(page, session, ("plan <b>.png", png(2, 2)), ("notes.txt", b"<script>x</script>"), htmx=htmx)

    assert answer.status_code == (200 if htmx else 302)
    html = answer.content.decode() if htmx else shown(page, session)
    assert re.search(r'<img src="/o/acme/files/[\w-]+/"\s+alt="plan &lt;b&gt;.png"', html)
    assert "notes.txt</a>" in html
    assert "<script>x" not in html
    assert html.count('<img src="/o/acme/files/') == 1


@pytest.mark.parametrize("htmx", [False, True])
@pytest.mark.parametrize(
    ("upload", "word"),
    [
        (("a.svg", b"<svg/>"), "kind"),
        (("a.png", b""), "empty"),
        (("a.png", png(50_000, 50_000)), "pixels"),
        (("a.txt", b"a" * (MAX_ATTACHED + 1)), "bytes"),
    ],
)
def test_a_refused_file_says_so_beside_the_field_and_the_draft_stays(
    page: Client, bob: Membership, upload: tuple[str, bytes], word: str, htmx: bool
) -> None:
    session = make_session(bob)

    answer = post(page, session, upload, message="my draft", htmx=htmx)

    html = answer.content.decode()
    assert answer.status_code == 422
    assert "my draft</textarea>" in html
    (error,) = re.findall(r'id="files-error"\s+role="alert">(.*?)</p>', html, re.DOTALL)
    assert word in error
    assert rows(session) == []


def test_an_organisation_without_room_says_so_beside_the_field(
    page: Client, bob: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_OF_ORGANISATION", 10)
    session = make_session(bob)

    html = post(page, session, ("a.png", png(1, 1))).content.decode()

    assert "no room left" in html[html.index('id="files-error"') :]


def test_regenerate_and_edit_send_the_files_again(page: Client, bob: Membership) -> None:
    session = make_session(bob)
    post(page, session, ("a.png", png(1, 1)), ("b.txt", b"b"))
    first = end(session)
    again = re.findall(r'name="again" value="([\w-]+)"', shown(page, session))
    edited = re.findall(r'name="again"\s+value="([\w-]+)"[^>]*checked', shown(page, session, f"?replaces={first.pk}"))

    assert len(again) == 2
    assert edited == again
    assert post(page, session, replaces=str(first.pk), again=again).status_code == 302
    second = end(session)
    kept = re.findall(r'name="again"\s+value="([\w-]+)"[^>]*checked', shown(page, session, f"?replaces={second.pk}"))
    post(page, session, ("c.txt", b"c"), replaces=str(second.pk), again=kept[:1])

    assert rows(session) == [(1, "a.png"), (1, "b.txt"), (2, "a.png"), (2, "b.txt"), (3, "a.png"), (3, "c.txt")]


def test_files_of_another_message_do_not_go_again(page: Client, bob: Membership) -> None:
    session = make_session(bob)
    post(page, session, ("a.png", png(1, 1)))
    end(session)
    (a,) = re.findall(r'name="again" value="([\w-]+)"', shown(page, session))
    post(page, session)
    last = end(session)

    refused = [post(page, session, replaces=str(last.pk), again=[a]), post(page, session, again=["x"])]

    assert [answer.status_code for answer in refused] == [422, 422]
    assert rows(session) == [(1, "a.png")]


def test_the_page_says_where_the_model_takes_no_images(
    page: Client, session: ChatSession, provider: ScriptedOpenAI
) -> None:
    post(page, session, ("a.png", png(1, 1)))
    with system_scope():
        work(Turn.objects.get(session=session))
    sees = shown(page, session)
    assert "The model scripted takes no images" in sees
    assert "with the attached files" in sees
