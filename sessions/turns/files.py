"""Files of turns: room for them, and those that are attached to messages, stored and read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Q, Sum

from capabilities.contract.attachments import FOLDER, AttachedFile, UnknownFile, checked, path_of
from capabilities.contract.results import ResultFile
from sessions.models import ATTACHED, ChatSession, StepFile, Turn

#: Bytes of all files that one organisation keeps. Looked at before a file is kept: writes side by side may pass it by
#: one each.
MAX_OF_ORGANISATION = 1_000_000_000
NO_ROOM = "The files cannot be kept: your organisation has {most:,} bytes for files, and no room left."


def has_room(files: Iterable[ResultFile]) -> bool:
    """Return whether the organisation in scope has room for these. One query."""
    kept = StepFile.objects.aggregate(bytes=Sum("size"))["bytes"] or 0
    return int(kept) + sum(len(each.content) for each in files) <= MAX_OF_ORGANISATION


def attachable(
    session: ChatSession, files: Sequence[tuple[str, bytes]], again: Sequence[UUID] = ()
) -> Sequence[ResultFile]:
    """Return the files that a message brings, behind those that it takes over from earlier messages of its session
    (`again`, by their ids). Raises NotTaken. One query for the latter."""
    if not (files or again):
        return ()
    known: dict[UUID, StepFile] = {}
    if again:
        found = StepFile.objects.filter(ATTACHED, turn__session=session, public_id__in=set(again))
        known = {each.public_id: each for each in found}
    if len(known) < len(set(again)):
        raise UnknownFile("One of these files is not attached to a message of this session.")
    over = [(each.name, bytes(each.content)) for each in map(known.__getitem__, dict.fromkeys(again))]
    return checked([*over, *files])


def store(turn: Turn, files: Sequence[ResultFile]) -> None:
    """Store the files with the message of a new turn, and remember that the session holds text from outside: what is in
    a file is no word of its member. Two queries; none without a file."""
    if not files:
        return
    StepFile.objects.bulk_create(
        StepFile(
            organisation_id=turn.organisation_id,
            turn=turn,
            place=place,
            name=each.name,
            media_type=each.media_type,
            size=len(each.content),
            content=each.content,
        )
        for place, each in enumerate(files)
    )
    ChatSession.objects.filter(pk=turn.session_id, is_untrusted=False).update(is_untrusted=True)


def are_same(turn: Turn, files: Sequence[ResultFile]) -> bool:
    """Return whether these are the files of the turn's message. One query, none where neither has one."""
    if not (turn.attached or files):
        return True
    stored = StepFile.objects.filter(ATTACHED, turn=turn).order_by("place").values_list("name", "content")
    return [(name, bytes(content)) for name, content in stored] == [(each.name, each.content) for each in files]


def files_of(session_id: UUID, numbers: Iterable[int]) -> dict[tuple[int, int], AttachedFile]:
    """Return the files of the messages of these turns of a session, without their content, by the turn's number and the
    file's place. One query; none without a number."""
    wanted = set(numbers)
    if not wanted:
        return {}
    rows = StepFile.objects.filter(ATTACHED, turn__session=session_id, turn__seq__in=wanted)
    return {
        (seq, place): AttachedFile(name, media_type, size, path_of(seq, name))
        for seq, place, name, media_type, size in rows.values_list("turn__seq", "place", "name", "media_type", "size")
    }


def contents_of(session_id: UUID, files: Iterable[tuple[int, int]]) -> dict[tuple[int, int], bytes]:
    """Return the contents of files by the number of their turn and their place. One query; none without a file."""
    wanted = set(files)
    if not wanted:
        return {}
    rows = StepFile.objects.filter(
        reduce(or_, (Q(turn__seq=seq, place=place) for seq, place in wanted)), ATTACHED, turn__session=session_id
    ).values_list("turn__seq", "place", "content")
    return {(seq, place): bytes(content) for seq, place, content in rows}


def attached_content(session_id: UUID, path: str) -> bytes | None:
    """Return the content of a file that was attached in a session, by the path that its messages name; None where there
    is none. One query; none for another path."""
    folder, _, rest = path.removeprefix("./").partition("/")
    number, _, name = rest.partition("/")
    if folder != FOLDER or not number.isdecimal() or len(number) > 9:
        return None
    found = StepFile.objects.filter(ATTACHED, turn__session=session_id, turn__seq=int(number), name=name)
    content = found.values_list("content", flat=True).first()
    return None if content is None else bytes(content)
