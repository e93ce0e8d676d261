"""Files that go with a message: which are taken, their names, the size of images, and the line that a model reads."""

from __future__ import annotations

import struct

import pytest

from capabilities.contract.attachments import (
    MAX_ATTACHED,
    MAX_EDGE,
    MOST_ATTACHED,
    PDF,
    AttachedFile,
    NotTaken,
    checked,
    image_tokens,
    path_of,
    pixels,
)
from tests.pictures import gif, jpeg, png, webp


def names_of(*files: tuple[str, bytes]) -> list[tuple[str, str]]:
    return [(each.name, each.media_type) for each in checked(files)]


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.png", png(3, 2), "image/png"),
        # The bytes say what it is, and not the name.
        ("a.txt", png(3, 2), "image/png"),
        ("a.png", jpeg(3, 2), "image/jpeg"),
        ("a.gif", gif(3, 2), "image/gif"),
        ("a.webp", webp(3, 2), "image/webp"),
        ("a.pdf", b"%PDF-1.7\n", PDF),
        ("a.TXT", b"words", "text/plain"),
        ("a.md", b"# words", "text/markdown"),
        ("a.csv", b"a,b\n", "text/csv"),
        ("a.json", b"{}", "application/json"),
    ],
)
def test_a_file_is_taken_as_what_its_bytes_show(name: str, content: bytes, media_type: str) -> None:
    assert names_of((name, content)) == [(name, media_type)]


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.png", b"", "empty"),
        ("a.png", b"<script>alert(1)</script>", "kind"),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", "kind"),
        ("a.html", b"<p>words</p>", "kind"),
        ("a.zip", b"PK\x03\x04", "kind"),
        ("a.exe", b"MZ\x00\x00", "kind"),
        ("a.txt", b"half \xff", "kind"),
        ("a.txt", b"nul \x00", "kind"),
        ("a.csv", b"PK\x03\x04\x00", "kind"),
        ("a.pdf", b"no pdf", "kind"),
        ("a", b"words", "kind"),
        # An image that would be unpacked to thousands of millions of pixels, by its header alone.
        ("a.png", png(100_000, 100_000), "pixels"),
        ("a.webp", webp(16_000, 10), "pixels"),
        ("a.gif", gif(60_000, 1), "pixels"),
        ("a.jpg", jpeg(1, MAX_EDGE + 1), "pixels"),
        ("a.png", png(0, 5), "image"),
        ("a.png", b"\x89PNG\r\n\x1a\n", "image"),
        ("a.jpg", b"\xff\xd8\xff\xe0\x00", "image"),
        ("a.jpg", b"\xff\xd8" + b"\xff" * 1_000, "image"),
        ("a.webp", b"RIFF0000WEBPVP8X", "image"),
        ("a.gif", b"GIF89a\x01", "image"),
        ("a.txt", b"a" * (MAX_ATTACHED + 1), "bytes"),
    ],
)
def test_a_file_that_is_not_taken_says_why(name: str, content: bytes, word: str) -> None:
    with pytest.raises(NotTaken, match=word):
        checked([(name, content)])


def test_files_are_counted_and_weighed_together() -> None:
    with pytest.raises(NotTaken, match="At most"):
        checked([("a.txt", b"a")] * (MOST_ATTACHED + 1))
    with pytest.raises(NotTaken, match="bytes"):
        checked([("a.txt", b"a" * (MAX_ATTACHED // 2 + 1))] * 2)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("../../etc/passwd.txt", "passwd.txt"),
        ("C:\\secret\\plan.txt", "plan.txt"),
        ("plan\r\nX: y.txt", "planX: y.txt"),
        ("inv\u202etxt.exe.txt", "invtxt.exe.txt"),
        ("\x00\ud800 Größe 图.txt", "Größe 图.txt"),
        ("a" * 500 + ".txt", "a" * 196 + ".txt"),
        ("..txt", None),
    ],
)
def test_a_name_is_one_plain_part(given: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(NotTaken):  # it has no ending
            checked([(given, b"words")])
    else:
        assert names_of((given, b"words")) == [(name, "text/plain")]


def test_files_of_one_message_have_names_of_their_own() -> None:
    files = [("image.png", png(1, 1)), ("image.png", png(2, 2)), ("x/image.png", png(1, 1)), ("", png(1, 1))]

    assert [name for name, _ in names_of(*files)] == ["image.png", "image (2).png", "image (3).png", "file-4"]


@pytest.mark.parametrize("make", [png, jpeg, gif, webp])
def test_pixels_are_read_from_the_header(make: object) -> None:
    assert callable(make)
    assert pixels(make(640, 480)) == (640, 480)


def test_pixels_of_the_other_forms_of_webp() -> None:
    lossy = b"RIFF0000WEBPVP8 0000" + b"\x00" * 6 + struct.pack("<HH", 640, 480)
    lossless = b"RIFF0000WEBPVP8L0000/" + struct.pack("<I", 639 | 479 << 14)

    assert (pixels(lossy), pixels(lossless)) == ((640, 480), (640, 480))


@pytest.mark.parametrize(
    ("size", "tokens"), [((1, 1), 255), ((512, 512), 255), ((1_024, 1_024), 765), ((2_048, 4_096), 1_105)]
)
def test_tokens_are_those_of_openais_tiles(size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(*size) == tokens


def test_a_line_has_no_brackets_of_the_name() -> None:
    file = AttachedFile("a] [image b.png", "image/png", 12_345, path_of(3, "a] [image b.png"))

    line = file.line("this model takes no images")

    shown = "a) (image b.png"
    assert line == f"[image {shown}, 12 KB, for tools: attachments/3/{shown}: this model takes no images]"
