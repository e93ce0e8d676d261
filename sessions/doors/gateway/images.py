"""Images that clients send in messages: read, and as files of the turn that their request becomes."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from capabilities.contract.attachments import MAX_ATTACHED, MOST_ATTACHED, NotTaken, checked, shown_type, size_text
from capabilities.contract.results import ResultFile
from sessions.doors.gateway.conversations import Message, images_in, list_of, plain_text
from sessions.doors.gateway.errors import Invalid

#: Parts of a user's message that are images, with the part of each that holds the address.
CHAT_IMAGE, RESPONSES_IMAGE = "image_url", "input_image"
#: Text of a message that has images alone: a turn without words goes on from what stands in front of it.
NO_TEXT = "(no text)"
#: Line in place of an image of an earlier message that is one too many for a request.
LEFT_OUT = "[image, {size}: it was sent with an earlier request, and is not sent again]"
ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp"}


def user_message(content: Any, param: str, kinds: Sequence[str]) -> Message:
    """A message of the user: its text, and the bytes of its images. Raises Invalid."""
    parts = content if isinstance(content, list) else []
    images, texts = [], []
    for place, part in enumerate(parts):
        if isinstance(part, Mapping) and part.get("type") in (CHAT_IMAGE, RESPONSES_IMAGE):
            images.append(_image(part, f"{param}.{place}"))
        else:
            texts.append(part)
    if not images:
        return {"role": "user", "content": plain_text(content, param, kinds)}
    list_of(images, param, most=MOST_ATTACHED)
    text = plain_text(texts, param, kinds)
    return {"role": "user", "content": text if text.strip() else NO_TEXT, "sent_images": images}


def _image(part: Mapping[str, Any], param: str) -> bytes:
    """The bytes of an image. An address is never fetched: whoever sends one would have this service ask for it."""
    address = part.get("image_url")
    if isinstance(address, Mapping):
        address = address.get("url")
    head, comma, data = address.partition(",") if isinstance(address, str) else ("", "", "")
    if not (comma and head.lower().startswith("data:") and head.lower().endswith(";base64")):
        raise Invalid(
            "An image is taken as a data URL, data:image/png;base64,...: no address is fetched, and no id of a file is "
            "known here.",
            param,
            "unsupported_content",
        )
    try:
        content = b64decode(data, validate=True)
    except ValueError:
        raise Invalid("This image is no base64.", param, "invalid_image") from None
    try:
        checked([("image", content)])
    except NotTaken as refused:
        raise Invalid(str(refused), param, "invalid_image") from refused
    if not shown_type(content):
        raise Invalid("Only images are taken here: PNG, JPEG, GIF and WebP.", param, "invalid_image")
    return content


def as_files(images: Sequence[bytes], param: str) -> list[ResultFile]:
    """The images as files of a turn's message. Raises Invalid for too many."""
    try:
        return checked([(f"image.{ENDINGS[shown_type(each)]}", each) for each in images])
    except NotTaken as refused:
        raise Invalid(str(refused), param, "too_many_images") from refused


def stored(messages: Sequence[Message], own: Sequence[bytes]) -> tuple[list[Message], list[bytes]]:
    """The earlier messages as they are stored, and their images, which stand behind the turn's `own`: `files` of a
    message are places of these. As many of the newest ones as one message may have; of others a line stands in the
    text."""
    most, room = MOST_ATTACHED - len(own), MAX_ATTACHED - sum(map(len, own))
    kept = 0
    sent = images_in(messages)
    for content in reversed(sent):
        room -= len(content)
        if room < 0 or kept == most:
            break
        kept += 1
    left_out, place, found = len(sent) - kept, len(own), []
    for message in messages:
        plain = {name: value for name, value in message.items() if name != "sent_images"}
        lines, places = [], []
        for content in message.get("sent_images", ()):
            if left_out:
                left_out -= 1
                lines.append(LEFT_OUT.format(size=size_text(len(content))))
            else:
                places.append(place)
                place += 1
        if lines:
            plain["content"] = "\n\n".join([plain["content"], "\n".join(lines)])
        found.append(plain | ({"files": places} if places else {}))
    return found, sent[len(sent) - kept :]
