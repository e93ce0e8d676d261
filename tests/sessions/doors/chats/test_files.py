"""Files that came with results: kept with their call, shown or downloaded, and nobody else's."""

from __future__ import annotations

import pytest
from django.test import Client

from capabilities.contract.results import ResultFile, ToolResult
from sessions.doors.chats.writes import delete_session, remove_deleted
from sessions.models import ChatSession, StepFile, StepStatus, Turn
from sessions.turns import files
from tests.cast import make_member
from tests.rest import Rest
from tests.scripted_openai import Say, ScriptedOpenAI, call
from tests.sessions.far_sides import FarSide, book_with, make_booking
from tests.sessions.run_turns import run, tool_steps_of
from toolhub.tenants.models import Access, Membership
from toolhub.tenants.rows.scope import organisation_scope, system_scope

pytestmark = pytest.mark.django_db(transaction=True)

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20
HTML = b"<script>alert(1)</script>"


@pytest.fixture
def turn(session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> Turn:
    """Its call brought a picture and others."""
    return booked(session, provider, monkeypatch)


def booked(session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch) -> Turn:
    make_booking(session.organisation)
    files = (
        ResultFile("plan.png", "image/png", PNG),
        ResultFile("../../etc/plan\r\n.html", "text/html", HTML),
        ResultFile("false.png", "image/png", HTML),
        ResultFile("plan.svg", "image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg'/>"),
        ResultFile("", "image/webp", b"RIFF0000WEBP"),
    )
    book_with(monkeypatch, FarSide(ToolResult("Seat 4a\n(plan.png)", {"seat": "4a"}, files)))
    provider.enqueue(Say(calls=[call("book_seat", {"seat": "4a"})]), Say("Booked."))
    return run(session)


def files_of(turn: Turn) -> list[StepFile]:
    with system_scope():
        return list(StepFile.objects.filter(turn=turn).order_by("place"))


def test_files_are_kept_with_their_call_and_the_model_reads_the_text_alone(
    turn: Turn, provider: ScriptedOpenAI
) -> None:
    (step,) = tool_steps_of(turn)
    assert (step.status, step.result_sent, step.structured) == (StepStatus.DONE, "Seat 4a\n(plan.png)", {"seat": "4a"})
    assert [(each.name, each.media_type, each.size) for each in files_of(turn)] == [
        ("plan.png", "image/png", 28),
        ("plan.html", "text/html", 25),
        ("false.png", "image/png", 25),
        ("plan.svg", "image/svg+xml", 41),
        ("file-5", "image/webp", 12),
    ]
    assert "alert" not in str(provider.requests[-1])


@pytest.mark.parametrize(
    ("place", "content_type", "disposition"),
    [
        (0, "image/png", 'inline; filename="plan.png"'),
        (1, "application/octet-stream", 'attachment; filename="plan.html"'),
        (2, "application/octet-stream", 'attachment; filename="false.png"'),
        (3, "application/octet-stream", 'attachment; filename="plan.svg"'),
        (4, "image/webp", 'inline; filename="file-5"'),
    ],
)
def test_s29_only_an_image_is_shown_and_nothing_runs(
    client: Client, turn: Turn, session: ChatSession, place: int, content_type: str, disposition: str
) -> None:
    file = files_of(turn)[place]
    client.force_login(session.membership.user)

    answers = [
        client.get(f"/o/acme/files/{file.public_id}/"),
        Rest(session.membership).client.get(f"/api/v1/files/{file.public_id}"),
    ]

    for answer in answers:
        assert (answer.status_code, answer["Content-Type"]) == (200, content_type)
        assert answer["Content-Disposition"] == disposition
        assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"
        assert (answer["X-Content-Type-Options"], answer["Cache-Control"]) == ("nosniff", "private, no-store")
        assert answer.content == bytes(file.content)


def test_s3_nobody_elses_files_are_there(
    client: Client, turn: Turn, session: ChatSession, alice: Membership, charlie: Membership
) -> None:
    file = files_of(turn)[0]
    with system_scope():
        carol = make_member(session.organisation, "carol")
        admin = make_member(session.organisation, "root", Access.ADMIN)
    for member, org, status in ((carol, "acme", 404), (charlie, "globex", 404), (charlie, "acme", 404)):
        client.force_login(member.user)
        assert client.get(f"/o/{org}/files/{file.public_id}/").status_code == status
        assert Rest(member).get(f"files/{file.public_id}").status == 404
        assert Rest(member).get(f"turns/{turn.pk}/files").status == 404
    client.force_login(admin.user)
    assert client.get(f"/o/acme/files/{file.public_id}/").status_code == 200


def test_the_chat_and_the_api_list_them(client: Client, turn: Turn, session: ChatSession) -> None:
    client.force_login(session.membership.user)
    first, html = files_of(turn)[:2]

    page = client.get(f"/o/acme/sessions/{session.pk}/").content.decode()
    listed = Rest(session.membership).get(f"turns/{turn.pk}/files").json["results"]

    assert f'<img src="/o/acme/files/{first.public_id}/"' in page
    assert f'<img src="/o/acme/files/{html.public_id}/"' not in page
    assert page.count("/files/") == 3 * 3 + 2
    # They stay in sight when the work is folded.
    assert page.index('class="work"') < page.index("</ol>\n") < page.index("</details>", page.index("</ol>\n"))
    assert page.index("</details>", page.index("</ol>\n")) < page.index("/files/")
    assert listed[0] == {
        "id": str(first.public_id),
        "step": 2,
        "name": "plan.png",
        "media_type": "image/png",
        "size": 28,
        "address": f"/api/v1/files/{first.public_id}",
    }
    assert len(listed) == 5


def test_an_organisation_without_room_keeps_none_and_the_model_reads_it(
    session: ChatSession, provider: ScriptedOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_OF_ORGANISATION", 100)

    turn = booked(session, provider, monkeypatch)

    assert files_of(turn) == []
    assert "The files of this result were not kept" in tool_steps_of(turn)[0].result_sent


def test_files_go_with_their_session(turn: Turn, session: ChatSession) -> None:
    with organisation_scope(session.organisation_id):
        delete_session(session, actor=session.membership)
        Turn.objects.update(is_rolled_up=True)
    (first, *_) = files_of(turn)
    assert Rest(session.membership).get(f"files/{first.public_id}").status == 404

    remove_deleted()

    assert files_of(turn) == []
