"""Files that a member attaches to a message: which are taken, by their bytes, and how a model reads of them. Pure.

Nothing is decoded: an image's size in pixels is read from its header, so that no file makes work beyond its own bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from capabilities.contract.results import MAX_NAME, ResultFile

#: Bytes of all files of one message (as base64 in JSON they fit into the largest body that the web server takes), and
#: how many there may be.
MAX_ATTACHED = 3_000_000
MOST_ATTACHED = 10
#: Pixels along an edge of an image: Anthropic refuses more.
MAX_EDGE = 8_000
#: Images that are shown, by how their files begin.
IMAGE_STARTS = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
}
WEBP = "image/webp"
PDF = "application/pdf"
#: Documents of plain text, by the ending of their names: their bytes have no other sign.
TEXTS = {"txt": "text/plain", "md": "text/markdown", "csv": "text/csv", "json": "application/json"}
TAKEN = "PNG, JPEG, GIF, WebP, PDF, and texts in UTF-8 named .txt, .md, .csv or .json"
#: The folder in which tools find a session's attached files.
FOLDER = "attachments"


class NotTaken(Exception):
    """A file that cannot be attached; the message says why, in a sentence for people, and `code` for programs."""

    code = "not_taken"


class UnknownFile(NotTaken):
    """No file of this id is attached in the session."""

    code = "unknown"


def checked(files: Sequence[tuple[str, bytes]]) -> list[ResultFile]:
    """Return the files, named once each and with the types that their bytes show. Raises NotTaken."""
    if len(files) > MOST_ATTACHED:
        raise NotTaken(f"At most {MOST_ATTACHED} files go with one message; these are {len(files):,}.")
    total = sum(len(content) for _, content in files)
    if total > MAX_ATTACHED:
        raise NotTaken(f"The files of one message have at most {MAX_ATTACHED:,} bytes; these have {total:,}.")
    found: list[ResultFile] = []
    for place, (given, content) in enumerate(files):
        name = plain_name(given) or f"file-{place + 1}"
        found.append(ResultFile(_unlike(name, {each.name for each in found}), _type_of(name, content), content))
    return found


def plain_name(name: str) -> str:
    """The last part of the name, without what no file name has; of a long one the beginning, and its ending."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    plain = "".join(each for each in last if each.isprintable()).strip(" .")
    stem, dot, ending = plain.rpartition(".")
    end = f".{ending}" if dot and len(ending) < 10 else ""
    return plain if len(plain) <= MAX_NAME else (stem if end else plain)[: MAX_NAME - len(end)] + end


def _unlike(name: str, known: set[str]) -> str:
    stem, dot, ending = name.rpartition(".")
    new, count = name, 2
    while new in known:
        end = f" ({count}){dot}{ending}" if dot and stem else f" ({count})"
        new, count = f"{(stem if dot and stem else name)[: MAX_NAME - len(end)]}{end}", count + 1
    return new


def _type_of(name: str, content: bytes) -> str:
    if not content:
        raise NotTaken(f"{name} is empty.")
    if image := shown_type(content):
        width, height = pixels(content)
        if not (width and height):
            raise NotTaken(f"{name} is no image that can be read.")
        if max(width, height) > MAX_EDGE:
            raise NotTaken(f"{name} is {width:,} by {height:,} pixels; at most {MAX_EDGE:,} along an edge are taken.")
        return image
    if content.startswith(b"%PDF-"):
        return PDF
    _, dot, ending = name.rpartition(".")
    kind = TEXTS.get(ending.lower()) if dot else None
    if kind is None or not _is_text(content):
        raise NotTaken(f"{name} is of a kind that is not taken. Taken are {TAKEN}.")
    return kind


def _is_text(content: bytes) -> bool:
    try:
        return "\x00" not in content.decode()
    except UnicodeDecodeError:
        return False


def shown_type(content: bytes) -> str:
    """The type of an image that is shown, by its first bytes; empty for all else."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return WEBP
    return next((kind for kind, starts in IMAGE_STARTS.items() if content.startswith(starts)), "")


# -- Size of an image -------------------------------------------------------------------------------------------------


def pixels(content: bytes) -> tuple[int, int]:
    """Width and height as the image's header says; zeros where it says none."""
    try:
        if content.startswith(IMAGE_STARTS["image/png"]) and content[12:16] == b"IHDR":
            return struct.unpack(">II", content[16:24])
        if content.startswith(IMAGE_STARTS["image/gif"]):
            return struct.unpack("<HH", content[6:10])
        if content.startswith(IMAGE_STARTS["image/jpeg"]):
            return _of_jpeg(content)
        return _of_webp(content) if shown_type(content) == WEBP else (0, 0)
    except struct.error:
        return 0, 0


def _of_jpeg(content: bytes) -> tuple[int, int]:
    """Read segment by segment up to the one that begins a frame (SOF0 to SOF15)."""
    place = 2
    while place + 9 <= len(content) and content[place] == 0xFF:
        marker = content[place + 1]
        if marker == 0xFF:  # fill
            place += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", content[place + 5 : place + 9])
            return width, height
        place += 2 + max(2, struct.unpack(">H", content[place + 2 : place + 4])[0])
    return 0, 0


def _of_webp(content: bytes) -> tuple[int, int]:
    kind = content[12:16]
    if kind == b"VP8X":
        width, height = (int.from_bytes(content[at : at + 3], "little") + 1 for at in (24, 27))
        return (width, height) if len(content) >= 30 else (0, 0)
    if kind == b"VP8L":
        (bits,) = struct.unpack("<I", content[21:25])
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", content[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def image_tokens(width: int, height: int) -> int:
    """Tokens that an image takes, as we estimate: 85, and 170 for each tile of 512 pixels, once it fits into 2,048 by
    2,048 and its shorter edge has at most 768. Source: OpenAI, "Images and vision", cost of gpt-4o and gpt-4.1. Other
    vendors count otherwise, and up to about the same."""
    scale = min(1.0, 2_048 / max(width, height, 1))
    scale *= min(1.0, 768 / max(1.0, min(width, height) * scale))
    return 85 + 170 * math.ceil(max(1, width * scale) / 512) * math.ceil(max(1, height * scale) / 512)


# -- Lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AttachedFile:
    """An attached file as a message tells of it. `path` is where tools find it."""

    name: str
    media_type: str
    size: int
    path: str

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    def line(self, note: str = "") -> str:
        """One line in brackets for the model, which has no brackets of the file's own name in it."""
        kind, name = "image" if self.is_image else "file", plain_line(self.name)
        return f"[{kind} {name}, {size_text(self.size)}, for tools: {plain_line(self.path)}{note and f': {note}'}]"


def plain_line(text: str) -> str:
    return text.replace("[", "(").replace("]", ")")


def path_of(seq: int, name: str) -> str:
    """The path by which tools read a file that was attached to the turn of this number."""
    return f"{FOLDER}/{seq}/{name}"


def size_text(size: int) -> str:
    if size < 1_000:
        return f"{size:,} bytes"
    return f"{size / 1e3:,.0f} KB" if size < 1_000_000 else f"{size / 1e6:,.1f} MB"
