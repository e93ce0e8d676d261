"""Files of turns, of results and of messages: as pages and the API list them, and as they are sent.

What is in them came from outside. Images of a few types are shown, as what their first bytes say that they are; all
others are only ever downloaded, and never run as a page of this service.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet
from django.http import Http404, HttpResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from capabilities.contract.attachments import IMAGE_STARTS, WEBP, shown_type
from sessions.access import visible_to
from sessions.models import ATTACHED, ChatSession, StepFile, StepKind, Turn
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership
from toolhub.tenants.pages import signed_in


def is_shown(file: StepFile) -> bool:
    """Return whether a page shows the file, going by its declared type alone. No query."""
    return file.media_type in IMAGE_STARTS or file.media_type == WEBP


def image_type(declared: str, content: bytes) -> str:
    """The type that the file may be shown as, where it is an image of that type; else empty."""
    return declared if declared and shown_type(content) == declared else ""


def files_seen_by(member: Membership) -> QuerySet[StepFile]:
    """Return the files of sessions that the member may see, without their content. A delegated right costs one
    query."""
    return StepFile.objects.filter(visible_to(member, "turn__session__")).defer("content")


def attached_to(session: ChatSession, turn_id: UUID) -> list[StepFile]:
    """Return the files of the message of one turn of the session, without their content. One query."""
    files = StepFile.objects.filter(ATTACHED, turn__session=session, turn=turn_id, place__lt=F("turn__attached"))
    return list(files.defer("content").order_by("place"))


def file_or_404(member: Membership, file_id: UUID) -> StepFile:
    """One file with what is in it; somebody else's looks like a missing one. One query."""
    files = StepFile.objects.filter(visible_to(member, "turn__session__"), public_id=file_id)
    if (file := files.first()) is None:
        raise Http404("No such file.")
    return file


def share_files(turns: Iterable[Turn]) -> None:
    """Give each step that brought files, and each turn whose message has some, its `shown_files`. No query for turns
    without one (`has_files`), else one."""
    by_key = {turn.pk: turn for turn in turns if vars(turn).get("has_files", True)}
    if not by_key:
        return
    steps = {step.pk: step for turn in by_key.values() for step in turn.steps.all() if step.kind == StepKind.TOOL}
    for file in StepFile.objects.filter(turn__in=by_key).defer("content").order_by("step", "place"):
        holder: Any = steps.get(file.step_id) if file.step_id else by_key[file.turn_id]
        if not file.step_id and file.place >= holder.attached:  # of a message that a client sent in front of the turn's
            continue
        if holder is not None:
            vars(file)["is_shown"] = is_shown(file)
            vars(holder).setdefault("shown_files", []).append(file)


def sent(file: StepFile) -> HttpResponse:
    """The file: an image that may be shown as one, all else as a download. Nothing in it runs here."""
    content = bytes(file.content)
    image = image_type(file.media_type, content)
    response = HttpResponse(content, content_type=image or "application/octet-stream")
    disposition = content_disposition_header(not image, file.name)
    response["Content-Disposition"] = disposition or "attachment"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["X-Content-Type-Options"] = "nosniff"
    response["Cross-Origin-Resource-Policy"] = "same-origin"
    response["Cache-Control"] = "private, no-store"
    return response


@require_GET
@signed_in
def file_download(request: MemberRequest, org: str, file_id: UUID) -> HttpResponse:
    return sent(file_or_404(member_or_404(request), file_id))
