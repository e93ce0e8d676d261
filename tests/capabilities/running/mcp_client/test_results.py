"""Results in odd forms: what they say reaches the model, and none is empty."""

from __future__ import annotations

import base64
import logging
import threading
from typing import Any

import pytest

from capabilities.running.mcp_client import protocol
from capabilities.running.mcp_client.background import THREAD
from capabilities.running.mcp_client.results import NOTHING, result_of

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
CODED = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"content": "just a string"}, "just a string"),
        ({"content": {"type": "text", "text": "an object"}}, "an object"),
        ({"content": ["a", {"text": "b"}, 3, None, [1]]}, "a\nb\n3\n[1]"),
        ({"toolResult": {"answer": 42}}, '{"answer": 42}'),
        ({"toolResult": "plain"}, "plain"),
        ({"content": []}, NOTHING),
        ({"content": None}, NOTHING),
        ({"content": ""}, NOTHING),
        ({"content": [{"type": "text", "text": " \n"}]}, NOTHING),
        ({}, NOTHING),
        ({"content": [], "structuredContent": {"a": 1}}, '{"a": 1}'),
        ({"content": [], "structuredContent": {}}, "{}"),
    ],
)
def test_what_a_result_of_any_form_says_reaches_the_model(sent: dict[str, Any], text: str) -> None:
    assert result_of(sent).text == text


def test_numbers_that_json_does_not_have_become_null() -> None:
    result = result_of({"content": [], "structuredContent": {"a": [float("nan")], "b": {"c": float("-inf")}, "d": 1.5}})

    assert result.structured == {"a": [None], "b": {"c": None}, "d": 1.5}
    assert "NaN" in result.text.splitlines()[-1]


@pytest.mark.parametrize("flag", [True, "true", "True", 1])
def test_a_failure_in_any_spelling_is_one(flag: Any) -> None:
    assert result_of({"isError": flag, "content": [{"type": "text", "text": "it failed"}]}).is_error
    assert not result_of({"isError": "false", "content": "fine"}).is_error


@pytest.mark.parametrize(
    "data",
    [
        CODED,
        "\r\n".join(CODED[start : start + 76] for start in range(0, len(CODED), 76)),
        f"data:image/png;base64,{CODED}",
        f" data:image/png;charset=x;base64,\n{CODED}\n",
        CODED.rstrip("="),
        base64.urlsafe_b64encode(PNG).decode(),
    ],
)
def test_base64_in_any_form_is_a_file(data: str) -> None:
    (file,) = result_of({"content": [{"type": "image", "mimeType": "image/png", "data": data}]}).files

    assert (file.content, file.media_type) == (PNG, "image/png")


def test_a_data_address_says_the_type_where_nothing_else_does() -> None:
    (file,) = result_of({"content": [{"type": "audio", "data": f"data:audio/wav;base64,{CODED}"}]}).files

    assert file.media_type == "audio/wav"


def test_several_files_have_names_of_their_own() -> None:
    block = {"type": "resource", "resource": {"uri": "file:///a/x.png", "mimeType": "image/png", "blob": CODED}}

    names = [each.name for each in result_of({"content": [block, block, block]}).files]

    assert len(set(names)) == 3


@pytest.mark.parametrize("name", ["client", "mcp.client.streamable_http", "mcp.shared.jsonrpc_dispatcher"])
def test_only_what_the_sdk_says_of_servers_is_left_out_of_the_log(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert protocol
    for thread in (THREAD, "another"):
        each = threading.Thread(target=logging.getLogger(name).error, args=("from %s", thread), name=thread)
        each.start()
        each.join()

    assert [record.getMessage() for record in caplog.records] == ["from another"]


@pytest.mark.parametrize(
    ("sent", "text", "is_error"),
    [
        ({"content": [{"type": "text", "text": {"a": 1}}]}, '{"a": 1}', False),
        ({"content": [{"type": "text", "text": 5}]}, "5", False),
        ({"content": [{"type": "TEXT", "text": "hi"}]}, "hi", False),
        ({"content": [{"type": "markdown", "text": "hi"}]}, "hi", False),
        ({"content": [{"type": "json", "json": {"a": 1}}]}, '{"a": 1}', False),
        ({"content": [{"a": 1}]}, '{"a": 1}', False),
        ({"content": [[{"type": "text", "text": "hi"}]]}, "hi", False),
        ({"content": [{"type": "tool_result", "content": [{"type": "text", "text": "hi"}]}]}, "hi", False),
        ({"content": [{"type": "resource", "uri": "a:b", "text": "hi"}]}, "[resource: a:b]\nhi", False),
        ({"toolResult": {"content": [{"type": "text", "text": "hi"}]}}, "hi", False),
        ({"toolResult": None}, "(The tool returned nothing.)", False),
        ({"result": "hi"}, "hi", False),
        ({"rows": [1], "count": 1}, '{"rows": [1], "count": 1}', False),
        ({"error": {"code": 1, "message": "boom"}}, "boom", True),
        ({"error": "boom"}, "boom", True),
        ({"content": "no", "is_error": True}, "no", True),
        ({"content": "no", "isError": "yes"}, "no", True),
        ({"_meta": {"a": 1}}, "(The tool returned nothing.)", False),
        ({"content": [{"type": "x"}], "structuredContent": [1]}, "(content of the type x was left out)\n[1]", False),
    ],
)
def test_a_result_in_an_odd_form_is_read_whole(sent: dict[str, Any], text: str, is_error: bool) -> None:
    result = result_of(sent)

    assert (result.text, result.is_error) == (text, is_error)


def test_an_image_in_the_form_of_another_vendor_is_a_file() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}

    (file,) = result_of({"content": [{"type": "image", "source": source}]}).files

    assert (file.media_type, len(file.content)) == ("image/png", 8)
