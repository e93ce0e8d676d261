"""Files that go with messages, as one model reads them: images where it takes some, a line of text for all else."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from capabilities.contract.attachments import AttachedFile, image_tokens, pixels
from sessions.loop.conversation.window import Message
from sessions.turns.files import contents_of, files_of

#: Images of one request, and their bytes: the newest ones. Of those before them the model reads a line.
MOST_IMAGES = 10
MOST_BYTES = 6_000_000
NO_IMAGES = "this model takes no images"
NOT_AGAIN = "it was sent with an earlier request, and is not sent again"


class MessageFiles:
    """Files of the messages of some turns of a session, which are given by their numbers.

    No query without a number, else one; one more for a model that takes images, where there are some.
    """

    def __init__(self, session_id: UUID, numbers: Iterable[int], *, takes_images: bool) -> None:
        self.takes_images = takes_images
        self._files = files_of(session_id, numbers)
        self._images = self._read_images(session_id) if takes_images else {}

    def _read_images(self, session_id: UUID) -> dict[tuple[int, int], dict[str, Any]]:
        chosen: list[tuple[int, int]] = []
        room = MOST_BYTES
        for seq, place in sorted(self._files, reverse=True):
            file = self._files[seq, place]
            if file.is_image and len(chosen) < MOST_IMAGES:
                room -= file.size
                if room < 0:
                    break
                chosen.append((seq, place))
        contents = contents_of(session_id, chosen)
        return {key: as_image(self._files[key], content) for key, content in contents.items()}

    def message(self, seq: int, places: Iterable[int], text: str) -> Message:
        """The user's message of this text with the files of these places, of the turn of this number. Its `images` are
        those that are sent."""
        found = [(seq, place) for place in places if (seq, place) in self._files]
        if not found:
            return {"role": "user", "content": text}
        lines = "\n".join(self._files[key].line(self._note(key)) for key in found)
        message: Message = {"role": "user", "content": f"{text}\n\n{lines}"}
        images = [self._images[key] for key in found if key in self._images]
        return {**message, "images": images} if images else message

    def have_images(self, seq: int, places: Iterable[int]) -> bool:
        """Return whether one of the files of these places, of the turn of this number, is an image."""
        return any((seq, place) in self._files and self._files[seq, place].is_image for place in places)

    def _note(self, key: tuple[int, int]) -> str:
        """Return why the model does not see an image; empty where it does, and for other files."""
        if not self._files[key].is_image or key in self._images:
            return ""
        return NOT_AGAIN if self.takes_images else NO_IMAGES


def as_image(file: AttachedFile, content: bytes) -> dict[str, Any]:
    """An image of a neutral message: its type, its bytes as base64, and the tokens that it is counted with."""
    tokens = image_tokens(*pixels(content))
    return {"media_type": file.media_type, "data": b64encode(content).decode(), "tokens": tokens}


def with_files(messages: Sequence[Message], seq: int, files: MessageFiles) -> list[Message]:
    """Return the messages that a client sent in front of the turn of this number, with their files."""
    return [files.message(seq, each["files"], each["content"]) if "files" in each else each for each in messages]


def have_files(messages: Sequence[Mapping[str, Any]] | None) -> bool:
    """Return whether one of the messages that a client sent in front of a turn has files."""
    return any("files" in each for each in messages or ())
