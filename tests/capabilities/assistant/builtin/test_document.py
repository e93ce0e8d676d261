"""Documents of the workspace: found, read, and refused where they are hostile or damaged."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader, PdfWriter

from capabilities.contract.context import ToolContext, ToolError
from capabilities.running.registry import registry

Call = Callable[..., Any]


def pdf(*pages: str) -> bytes:
    """A PDF with a line of text on each page."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for text in pages:
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
        objects.append(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >>"
            f" /Contents {len(objects)} 0 R >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    body, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{text}\nendobj\n"
    start = len(body)
    body += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n"
    body += "".join(f"{place:010} 00000 n \n" for place in places)
    body += f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n"
    return body.encode("latin-1")


def archive(parts: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, text in parts.items():
            file.writestr(name, text)
    return buffer.getvalue()


WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
EXCEL = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
DRAWING = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
OPEN = (
    'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    ' xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"'
)


def docx(*paragraphs: str) -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{each}</w:t></w:r></w:p>" for each in paragraphs)
    return archive({"word/document.xml": f"<w:document {WORD}><w:body>{body}</w:body></w:document>"})


def xlsx() -> bytes:
    shared = "<si><t>Item</t></si><si><r><t>Pri</t></r><r><t>ce</t></r></si>"
    rows = (
        '<row r="1"><c t="s"><v>0</v></c><c t="s"><v>1</v></c></row>'
        '<row r="2"><c t="inlineStr"><is><t>Tea</t></is></c><c><v>4.5</v></c></row>'
    )
    return archive(
        {
            "xl/sharedStrings.xml": f"<sst {EXCEL}>{shared}</sst>",
            "xl/worksheets/sheet1.xml": f"<worksheet {EXCEL}><sheetData>{rows}</sheetData></worksheet>",
        }
    )


def pptx(*slides: str) -> bytes:
    return archive(
        {
            f"ppt/slides/slide{number}.xml": f"<sld {DRAWING}><a:p><a:r><a:t>{text}</a:t></a:r></a:p></sld>"
            for number, text in reversed(list(enumerate(slides, 1)))
        }
    )


def odt(*paragraphs: str) -> bytes:
    body = "".join(f"<text:p>{each}<text:line-break/>.</text:p>" for each in paragraphs)
    return archive({"content.xml": f"<office:document {OPEN}>{body}</office:document>"})


@pytest.fixture
def folder(context: ToolContext) -> Path:
    context.workspace.mkdir(parents=True)
    return context.workspace


def refused(call: Call, name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as told:
        call(name, **arguments)
    return str(told.value)


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("a.pdf", pdf("Vacation takes 30 days."), "Vacation takes 30 days."),
        ("a.docx", docx("First.", "Second &amp; last."), "First.\nSecond & last."),
        ("a.xlsx", xlsx(), "Item\tPrice\nTea\t4.5"),
        ("a.pptx", pptx("Welcome"), "Welcome"),
        ("a.odt", odt("One", "Two"), "One\n.\nTwo\n."),
        ("a.html", b"<title>T</title><body><nav>Menu</nav><p>Long enough text of it</p>", "Long enough text of it"),
        ("a.md", "# Grüße".encode(), "# Grüße"),
        ("A.TXT", b"\xef\xbb\xbfplain", "plain"),
        ("a.csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
    ],
)
def test_cx_23_a_document_of_each_kind_is_read_as_text(
    call: Call, folder: Path, name: str, data: bytes, text: str
) -> None:
    (folder / name).write_bytes(data)

    assert text in call("document_read", path=name)["text"]


def test_pages_are_read_from_one_to_another(call: Call, folder: Path) -> None:
    (folder / "slides.pptx").write_bytes(pptx(*(f"Slide {number}" for number in range(1, 13))))

    read = call("document_read", path="slides.pptx", first=10, last=11)

    assert read == {"pages": 12, "first": 10, "last": 11, "text": "Slide 10\n\nSlide 11"}
    assert refused(call, "document_read", path="slides.pptx", first=13) == "slides.pptx has 12 pages."


def test_documents_are_listed_with_what_is_below(call: Call, folder: Path) -> None:
    (folder / "hr").mkdir()
    (folder / "node_modules").mkdir()
    for name in ("hr/a.pdf", "b.txt", "c.bin", "node_modules/d.md"):
        (folder / name).write_bytes(b"x")

    listed = call("document_list")["documents"]

    assert sorted(each["path"] for each in listed) == ["b.txt", "hr/a.pdf"]
    assert [each["path"] for each in call("document_list", path="hr")["documents"]] == ["hr/a.pdf"]


def test_a_search_names_document_and_page(call: Call, folder: Path) -> None:
    (folder / "handbook.pdf").write_bytes(pdf("Office hours", "Vacation takes 30 days", "Travel"))
    (folder / "menu.md").write_text("Soup of the day\n\nTea")

    found = call("document_search", query="how many days of vacation")["found"]

    assert (found[0]["document"], found[0]["page"], found[0]["excerpt"]) == (
        "handbook.pdf",
        2,
        "Vacation takes 30 days",
    )


def test_one_damaged_document_does_not_stop_the_search(call: Call, folder: Path) -> None:
    (folder / "bad.pdf").write_bytes(b"%PDF-1.4 nothing")
    (folder / "good.md").write_text("vacation")

    answer = call("document_search", query="vacation")

    assert [each["document"] for each in answer["found"]] == ["good.md"]
    assert (answer["not_searched"], answer["such_as"]) == (1, ["bad.pdf"])


def locked() -> bytes:
    writer = PdfWriter(clone_from=PdfReader(io.BytesIO(pdf("secret"))))
    writer.encrypt("password")
    buffer = io.BytesIO()
    writer.write(buffer)
    return buffer.getvalue()


BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><w:p>&b;</w:p>'


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("locked.pdf", locked(), "locked with a password"),
        ("odd.pdf", b"no pdf", "no pdf document, or a damaged one"),
        ("odd.docx", b"no zip", "no docx document, or a damaged one"),
        ("empty.docx", archive({}), "no docx document, or a damaged one"),
        ("entities.docx", archive({"word/document.xml": BOMB}), "no docx document, or a damaged one"),
        ("bomb.docx", archive({"word/document.xml": "<a>" + " " * 90_000_000 + "</a>"}), "too large once"),
        ("deep.odt", archive({"content.xml": "<p>" * 2_000_000}), "could not be read"),
        ("binary.txt", b"a\0b", "no text"),
        ("huge.txt", b"x" * 20_000_001, "bytes; 20,000,000 can be read"),
    ],
)
def test_s35_hostile_documents_are_refused_in_a_sentence(
    call: Call, folder: Path, name: str, data: bytes, why: str
) -> None:
    (folder / name).write_bytes(data)

    sentence = refused(call, "document_read", path=name)

    assert why in sentence
    assert sentence.startswith(name)


def test_nothing_outside_the_workspace_is_read(call: Call, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_text("theirs")
    (folder / "link.txt").symlink_to(tmp_path / "other.txt")

    assert "never leads out" in refused(call, "document_read", path="../other.txt")
    assert "links are not followed" in refused(call, "document_read", path="link.txt")
    assert call("document_search", query="theirs") == {"found": []}
    assert "file_read" in refused(call, "document_read", path="program.py")


def test_a_changed_document_is_read_anew(call: Call, folder: Path) -> None:
    (folder / "a.txt").write_text("before")
    assert call("document_read", path="a.txt")["text"] == "before"
    (folder / "a.txt").write_text("afterwards")

    assert call("document_read", path="a.txt")["text"] == "afterwards"


def test_s5_organisations_do_not_share_what_was_read(
    call: Call, context: ToolContext, folder: Path, tmp_path: Path
) -> None:
    (folder / "a.txt").write_text("ours")
    call("document_read", path="a.txt")
    status = (folder / "a.txt").stat()
    other = replace(context, organisation_id=7, workspace=tmp_path / "theirs")
    other.workspace.mkdir()
    (other.workspace / "a.txt").write_text("them")
    os.utime(other.workspace / "a.txt", ns=(status.st_atime_ns, status.st_mtime_ns))

    assert registry.tools["document_read"].call(other, {"path": "a.txt"})["text"] == "them"
