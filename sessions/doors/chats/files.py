"""Files of results: as pages and the API list them, and as they are sent.

What is in them came from outside. Images of a few types are shown, as what their first bytes say that they are; all
others are only ever downloaded, and never run as a page of this service.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET

from sessions.access import visible_to
from sessions.models import StepFile, StepKind, Turn
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Membership
from toolhub.tenants.pages import signed_in

#: Types that are shown, by how their files begin.
SHOWN_TYPES = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
WEBP = "image/webp"


def is_shown(file: StepFile) -> bool:
    """Return whether a page shows the file, going by its declared type alone. No query."""
    return file.media_type in SHOWN_TYPES or file.media_type == WEBP


def image_type(declared: str, content: bytes) -> str:
    """The type that the file may be shown as, where it is an image of that type; else empty."""
    if declared == WEBP:
        return WEBP if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""
    return declared if content.startswith(SHOWN_TYPES.get(declared, ())) else ""


def files_seen_by(member: Membership) -> QuerySet[StepFile]:
    """Return the files of sessions that the member may see, without their content. A delegated right costs one
    query."""
    return StepFile.objects.filter(visible_to(member, "turn__session__")).defer("content")


def file_or_404(member: Membership, file_id: UUID) -> StepFile:
    """One file with what is in it; somebody else's looks like a missing one. One query."""
    files = StepFile.objects.filter(visible_to(member, "turn__session__"), public_id=file_id)
    if (file := files.first()) is None:
        raise Http404("No such file.")
    return file


def share_files(turns: Iterable[Turn]) -> None:
    """Give each step that brought files its `shown_files`. No query for turns without one (`has_files`), else one."""
    turns = [turn for turn in turns if vars(turn).get("has_files", True)]
    steps = {step.pk: step for turn in turns for step in turn.steps.all() if step.kind == StepKind.TOOL}
    if not steps:
        return
    for file in StepFile.objects.filter(step__in=steps).defer("content").order_by("step", "place"):
        vars(file)["is_shown"] = is_shown(file)
        vars(steps[file.step_id]).setdefault("shown_files", []).append(file)


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
