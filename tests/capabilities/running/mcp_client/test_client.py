"""The client of MCP servers: over HTTP in both protocols and with processes, against a scripted server."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest

from capabilities.contract.context import Credential
from capabilities.running.mcp_client import background, client, exchanges
from capabilities.running.mcp_client.errors import (
    AnswerRefused,
    McpError,
    NotAuthorised,
    ServerBusy,
    ServerLost,
    ServerRefused,
    ServerSilent,
    ServerUnreachable,
    Stopped,
)
from capabilities.running.mcp_client.server_addresses import ServerAddress
from tests.capabilities.running.mcp_client.over_http import http_server, old_http_server, raw_server
from tests.capabilities.running.mcp_client.scripted import MODERN, OLD, Script, text_result, usual, wait_until
from tests.serving import serving

SCRIPT = Path(__file__).with_name("scripted.py")


@pytest.fixture
def principal(request: pytest.FixtureRequest) -> str:
    """No test meets another's sessions."""
    return str(request.node.nodeid)


@pytest.fixture
def script() -> Script:
    return usual()


@pytest.fixture
def address(script: Script, principal: str) -> Iterator[ServerAddress]:
    with http_server(script) as url:
        yield ServerAddress("http", principal, title="The test server", url=url)


@pytest.fixture
def process(principal: str) -> ServerAddress:
    return process_of(SCRIPT, principal=principal)


def process_of(*argv: Path | str, principal: str, **more: Any) -> ServerAddress:
    command = (sys.executable, *map(str, argv))
    return ServerAddress("stdio", principal, title="The process", argv=command, **more)


@pytest.fixture
def old_address(script: Script, principal: str) -> Iterator[ServerAddress]:
    """A server that keeps sessions, of protocol 2025-11-25."""
    with old_http_server(script) as url:
        yield ServerAddress("http", principal, title="The old server", url=url)


def text_of(address: ServerAddress, text: str, **more: Any) -> str:
    answer = client.call_tool(address, "echo", {"text": text}, timeout=more.pop("timeout", 20), **more)
    assert answer.result is not None
    return str(answer.result["content"][0]["text"])


def pid_of(address: ServerAddress) -> int:
    async def look() -> int:
        server = exchanges.pool().sessions[address.key].process
        assert server is not None
        return server.pid

    return background.run(look(), seconds=5)


def methods(script: Script) -> list[str]:
    return [headers.get("mcp-method", verb) for verb, headers in script.requests]


# -- Lists ------------------------------------------------------------------------------------------------------------


def test_a_list_says_what_the_server_is(address: ServerAddress, script: Script) -> None:
    script.ttl_ms, script.cache_scope = 90_000, "public"

    listing = client.list_tools(address)

    assert [tool.name for tool in listing.tools] == ["echo", "slow", "die"]
    assert (listing.protocol, listing.server_info["name"], listing.instructions) == (MODERN, "scripted", "Be kind.")
    assert (listing.ttl, listing.cache_scope, listing.tells_changes, listing.is_cut) == (90.0, "public", False, False)


def test_an_old_server_is_asked_in_its_own_protocol(old_address: ServerAddress) -> None:
    listing = client.list_tools(old_address)

    assert (listing.protocol, listing.ttl, listing.cache_scope) == (OLD, None, "private")
    assert [tool.name for tool in listing.tools] == ["echo", "slow", "die"]


@pytest.mark.parametrize("cursor", ["8", ""])
def test_a_list_that_never_ends_is_read_once(principal: str, cursor: str) -> None:
    tools = [{"name": name, "inputSchema": {"type": "object", "x": float("nan")}} for name in ("one", "two")]
    asked: list[Any] = []

    def page(message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message)
        return {"tools": tools, "nextCursor": cursor}

    with raw_server({"tools/list": page}) as url:
        listing = client.list_tools(ServerAddress("http", principal, url=url))

    assert [tool.name for tool in listing.tools] == ["one", "two"]
    assert [tool.definition["inputSchema"]["x"] for tool in listing.tools] == [None, None]
    assert "without end" in listing.note
    assert len(asked) == 2


def test_a_cursor_that_was_had_before_ends_a_list(principal: str) -> None:
    asked: list[Any] = []

    def page(message: dict[str, Any]) -> dict[str, Any]:
        asked.append(message)
        tools = [{"name": f"tool{len(asked)}", "inputSchema": {"type": "object"}}]
        return {"tools": tools, "nextCursor": "ab"[len(asked) % 2]}

    with raw_server({"tools/list": page}) as url:
        listing = client.list_tools(ServerAddress("http", principal, url=url))

    assert len(listing.tools) == len(asked) == 3
    assert listing.note


def test_a_list_in_pages_is_read_whole_and_an_endless_one_is_cut(
    principal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"": (["a", "b"], "2"), "2": (["c"], "3"), "3": (["d", "e", "f"], "3")}

    def page(message: dict[str, Any]) -> dict[str, Any]:
        names, cursor = pages[message.get("params", {}).get("cursor", "")]
        tools = [{"name": f"{name}{len(seen)}", "inputSchema": {"type": "object"}} for name in names]
        seen.append(message)
        return {"tools": tools, "nextCursor": cursor, "ttlMs": 5_000, "cacheScope": "public"}

    seen: list[Any] = []
    monkeypatch.setattr("capabilities.running.mcp_client.exchanges.MAX_TOOLS", 5)
    with raw_server({"tools/list": page}) as url:
        listing = client.list_tools(ServerAddress("http", principal, url=url))

    assert [tool.name for tool in listing.tools] == ["a0", "b0", "c1", "d2", "e2"]
    assert listing.is_cut


def test_tx18_a_malformed_tool_costs_the_list_nothing_else(principal: str) -> None:
    header = {"type": "string", "x-mcp-header": "Region"}
    tools = [
        {"name": "good", "inputSchema": {"type": "object", "properties": {"region": header}}, "unknown": [1]},
        {"name": "bare"},
        {"inputSchema": {}},
        "nothing",
        {"name": "good", "inputSchema": {"type": "object"}},
        {"name": "spaced", "inputSchema": {"type": "object", "properties": {"a": header | {"x-mcp-header": "a b"}}}},
        {"name": "float", "inputSchema": {"type": "object", "properties": {"a": header | {"type": "number"}}}},
    ]
    with raw_server({"tools/list": lambda _: {"tools": tools}}) as url:
        listing = client.list_tools(ServerAddress("http", principal, url=url))

    good, *rest = listing.tools
    assert (good.unusable, good.headers, good.definition["unknown"]) == ("", {("region",): "Region"}, [1])
    assert [tool.unusable[:32] for tool in rest] == [
        "",
        "It has no name.",
        "It has no name.",
        "The list has another tool of thi",
        "Its header annotations are malfo",
        "Its header annotations are malfo",
    ]


# -- Calls ------------------------------------------------------------------------------------------------------------


def test_a_known_modern_server_costs_one_request_a_call(address: ServerAddress, script: Script) -> None:
    client.list_tools(address)
    script.requests.clear()

    assert [text_of(address, "a"), text_of(address, "b")] == ["a", "b"]
    assert methods(script) == ["tools/call", "tools/call"]


def test_no_two_requests_have_the_same_number(principal: str) -> None:
    numbers: list[Any] = []

    def answer(message: dict[str, Any]) -> dict[str, Any]:
        numbers.append(message["id"])
        return {"content": [{"type": "text", "text": "a"}]}

    with raw_server({"tools/call": answer}) as url:
        address = ServerAddress("http", principal, url=url, protocol=MODERN)
        assert [text_of(address, "a") for _ in range(3)] == ["a"] * 3

    assert len(set(numbers)) == 3


def test_the_protocol_that_a_row_remembers_saves_the_question(address: ServerAddress, script: Script) -> None:
    known = ServerAddress("http", address.principal, url=address.url, protocol=MODERN)

    assert text_of(known, "a") == "a"
    assert methods(script) == ["tools/call"]


def test_an_old_server_keeps_one_session_for_all_calls_of_a_principal(
    old_address: ServerAddress, script: Script
) -> None:
    assert [text_of(old_address, str(number)) for number in range(3)] == ["0", "1", "2"]

    sessions = {headers.get("mcp-session-id") for verb, headers in script.requests if verb == "POST"}
    assert len(sessions - {None}) == 1


def test_a_server_that_was_modern_and_is_old_now_is_called_all_the_same(old_address: ServerAddress) -> None:
    mistaken = ServerAddress("http", old_address.principal, url=old_address.url, protocol=MODERN)

    assert text_of(mistaken, "a") == "a"


def test_a_server_that_was_old_and_is_modern_now_is_called_all_the_same(principal: str) -> None:
    with raw_server({"tools/call": lambda _: {"content": [{"type": "text", "text": "a"}]}}) as url:
        assert text_of(ServerAddress("http", principal, url=url, protocol=OLD), "a") == "a"


def test_an_old_server_that_forgot_the_session_gets_a_new_one(old_address: ServerAddress, script: Script) -> None:
    assert text_of(old_address, "a") == "a"
    script.forgotten = {headers["mcp-session-id"] for _, headers in script.requests if "mcp-session-id" in headers}

    assert text_of(old_address, "b") == "b"
    assert [call["arguments"]["text"] for call in script.calls] == ["a", "b"]


def test_sessions_are_never_shared_between_principals(old_address: ServerAddress, script: Script) -> None:
    other = ServerAddress("http", old_address.principal + " other", url=old_address.url)

    text_of(old_address, "a")
    text_of(other, "b")

    sessions = {headers.get("mcp-session-id") for verb, headers in script.requests if verb == "POST"}
    assert len(sessions - {None}) == 2


def test_a_call_that_takes_too_long_is_cancelled_at_the_server(address: ServerAddress, script: Script) -> None:
    with pytest.raises(ServerSilent, match=r"The test server did not answer within 0\.5 s"):
        client.call_tool(address, "slow", {}, timeout=0.5)

    assert wait_until(lambda: script.cancelled == ["slow"])
    assert text_of(address, "still") == "still"


@pytest.mark.parametrize("kind", ["address", "old_address"])
def test_a_stopped_turn_ends_its_call_at_once(kind: str, request: pytest.FixtureRequest, script: Script) -> None:
    address = request.getfixturevalue(kind)
    stopped = threading.Event()
    threading.Timer(0.3, stopped.set).start()
    began = time.monotonic()

    with pytest.raises(Stopped):
        client.call_tool(address, "slow", {}, timeout=25, stopped=stopped)

    assert time.monotonic() - began < 10
    assert wait_until(lambda: script.cancelled == ["slow"])


def test_a_timeout_says_what_the_server_last_said(address: ServerAddress, script: Script) -> None:
    async def work(params: Any, context: Any) -> Any:
        await context.session.report_progress(3, 10, "indexing \u202ethe\u202c files")
        await anyio.sleep(30)

    script.tool("index", work)

    with pytest.raises(ServerSilent, match="it last said: 3 of 10, indexing the files"):
        client.call_tool(address, "index", {}, timeout=1)


def test_an_error_of_the_protocol_is_told_in_its_words(address: ServerAddress) -> None:
    with pytest.raises(ServerRefused, match="The test server answered with an error: Unknown tool nope") as refused:
        client.call_tool(address, "nope", {}, timeout=20)

    assert refused.value.code == types.INVALID_PARAMS


def test_a_hanging_server_takes_only_its_own_places(
    address: ServerAddress, process: ServerAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang() -> None:
        with pytest.raises(McpError):
            client.call_tool(address, "slow", {}, timeout=8)

    threads = [threading.Thread(target=hang) for _ in range(8)]
    for thread in threads:
        thread.start()
    other = ServerAddress("http", address.principal + " other", url=address.url)
    try:
        assert text_of(process, "a") == "a"
        assert text_of(other, "b") == "b"
        with pytest.raises(ServerBusy, match="8 calls of The test server run already"):
            client.call_tool(address, "slow", {}, timeout=0.5)
    finally:
        for thread in threads:
            thread.join()


# -- Credentials ------------------------------------------------------------------------------------------------------


def test_s37_a_credential_goes_with_every_request_to_its_origin_and_nowhere_else(
    address: ServerAddress, script: Script
) -> None:
    origin = address.url.removesuffix("/mcp")
    secret = Credential(headers={"Authorization": "Bearer s3cret"}, query={"key": "k3y"}, origins=(origin,))
    signed = ServerAddress("http", address.principal, url=address.url, credential=secret)
    elsewhere = Credential(headers={"Authorization": "Bearer s3cret"}, origins=("https://elsewhere.example",))
    unsigned = ServerAddress("http", address.principal + " 2", url=address.url, credential=elsewhere)

    client.list_tools(signed)
    text_of(signed, "a")
    assert {headers.get("authorization") for _, headers in script.requests} == {"Bearer s3cret"}
    assert {headers[":query"] for _, headers in script.requests} == {"key=k3y"}
    script.requests.clear()
    text_of(unsigned, "a")
    assert {headers.get("authorization") for _, headers in script.requests} == {None}


def test_a_kept_session_signs_with_the_token_that_is_given_now(old_address: ServerAddress, script: Script) -> None:
    origin = old_address.url.removesuffix("/mcp")
    for token in ("first", "second"):
        secret = Credential(headers={"Authorization": token}, origins=(origin,))
        text_of(ServerAddress("http", old_address.principal, url=old_address.url, credential=secret), "a")

    assert script.requests[-1][1]["authorization"] == "second"


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("kind", ["address", "old_address"])
def test_a_refused_credential_comes_with_the_challenge(
    kind: str, status: int, script: Script, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(kind)
    challenge = 'Bearer error="insufficient_scope", scope="files:write"'
    text_of(address, "a")
    script.refuse = (status, {"www-authenticate": challenge}, b"no")

    with pytest.raises(NotAuthorised) as refused:
        text_of(address, "a")

    assert (refused.value.status, refused.value.challenge) == (status, challenge)
    script.refuse = None
    assert text_of(address, "b") == "b"


@pytest.mark.parametrize("kind", ["address", "old_address"])
@pytest.mark.parametrize(
    ("is_signed", "status", "told"),
    [
        (True, 401, "does not accept the credential"),
        (True, 403, "with the credential"),
        (False, 401, "none is set: an administrator chooses one"),
        (False, 403, "none is set"),
    ],
)
def test_a_credential_is_refused_only_where_one_is_set(
    kind: str, is_signed: bool, status: int, told: str, script: Script, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(kind)
    secret = Credential(headers={"Authorization": "s3cret"}, origins=(address.url.removesuffix("/mcp"),))
    script.refuse = (status, {}, b"no")

    with pytest.raises(NotAuthorised) as refused:
        text_of(
            ServerAddress("http", address.principal, url=address.url, credential=secret if is_signed else Credential()),
            "a",
        )

    assert told in str(refused.value)


@pytest.mark.parametrize("status", [400, 409, 425, 429])
@pytest.mark.parametrize("kind", ["address", "old_address"])
def test_what_a_status_refuses_was_not_done(
    kind: str, status: int, script: Script, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(kind)
    text_of(address, "a")
    script.refuse = (status, {}, b"no")

    with pytest.raises(ServerRefused, match=str(status)):
        text_of(address, "a")


def test_s33_a_redirect_elsewhere_is_not_followed(address: ServerAddress, script: Script, principal: str) -> None:
    with http_server(usual()) as other:
        script.refuse = (307, {"location": other}, b"")
        secret = Credential(headers={"Authorization": "s3cret"}, origins=(address.url.removesuffix("/mcp"),))
        with pytest.raises(McpError):
            text_of(ServerAddress("http", principal, url=address.url, credential=secret), "a")


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.2:9/mcp",
        "http://169.254.169.254/latest",
        "http://[::1]:9/mcp",
        "http://localhost.:9/mcp",
        "http://0x7f.1:9/mcp",
        "http://2130706434:9/mcp",
        "file:///etc/passwd",
        "http://user@127.0.0.1/mcp",
    ],
)
def test_s31_a_private_address_is_refused(url: str, principal: str) -> None:
    with pytest.raises(McpError):
        client.list_tools(ServerAddress("http", principal, url=url), timeout=10)


def test_s35_an_answer_without_end_is_cut(principal: str) -> None:
    with raw_server({"tools/call": lambda _: {"content": [{"type": "text", "text": "x" * 9_000_000}]}}) as url:
        address = ServerAddress("http", principal, url=url, protocol=MODERN)
        with pytest.raises(ServerUnreachable, match="larger than is taken"):
            client.call_tool(address, "echo", {}, timeout=20)


def test_s35_an_answer_of_too_many_parts_is_cut(principal: str) -> None:
    with raw_server({"tools/call": lambda _: {"content": [], "structuredContent": [[]] * 500_000}}) as url:
        address = ServerAddress("http", principal, url=url, protocol=MODERN)
        with pytest.raises(ServerUnreachable, match="more parts than are taken"):
            client.call_tool(address, "echo", {}, timeout=20)


def test_s35_white_space_hides_no_parts_of_an_answer(principal: str) -> None:
    """Between the events of a stream an empty line begins anew; within JSON it says nothing."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for _ in range(6):
                piece = b"[" + b"[]," * 40_000 + b"[]],\n\n"
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0.05)
            await send({"type": "http.response.body", "body": b"[]"})

    with serving(app) as origin:
        address = ServerAddress("http", principal, url=f"{origin}/mcp", protocol=MODERN)
        with pytest.raises(ServerUnreachable, match="more parts than are taken"):
            client.call_tool(address, "echo", {}, timeout=20)


@pytest.mark.parametrize(
    "body", [b"<html>", b"[]", b'{"jsonrpc":"2.0","id":1}', b'{"jsonrpc":"2.0","id":1,"result":7}']
)
def test_what_is_no_answer_is_refused_in_a_sentence(body: bytes, principal: str) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    with serving(app) as origin:
        address = ServerAddress("http", principal, url=f"{origin}/mcp", protocol=MODERN)
        with pytest.raises((AnswerRefused, ServerRefused, ServerSilent)):
            client.call_tool(address, "echo", {}, timeout=3)


def test_arguments_go_as_headers_where_the_definition_says_so(address: ServerAddress, script: Script) -> None:
    header = {"type": "string", "x-mcp-header": "Region"}
    script.tool("store", text_result("ok"), schema={"type": "object", "properties": {"region": header}})
    (tool,) = [each for each in client.list_tools(address).tools if each.name == "store"]

    client.call_tool(address, "store", {"region": "Zürich"}, headers=tool.headers, timeout=20)

    assert script.requests[-1][1]["mcp-param-region"] == "=?base64?WsO8cmljaA==?="
    assert script.requests[-1][1]["mcp-name"] == "store"


# -- Processes --------------------------------------------------------------------------------------------------------


def test_a_process_is_started_once_and_called_often(process: ServerAddress) -> None:
    assert client.list_tools(process).protocol == MODERN
    began = time.monotonic()

    assert [text_of(process, str(number)) for number in range(20)] == [str(number) for number in range(20)]
    assert time.monotonic() - began < 20


def test_many_threads_use_one_process(process: ServerAddress) -> None:
    said: list[str] = []

    def talk(number: int) -> None:
        said.extend(text_of(process, f"{number} {turn}") for turn in range(10))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(said) == sorted(f"{number} {turn}" for number in range(6) for turn in range(10))


def test_a_killed_process_is_an_error_at_once_and_started_again_at_the_next_call(process: ServerAddress) -> None:
    assert text_of(process, "a") == "a"
    began = time.monotonic()

    with pytest.raises(ServerLost, match="The connection to The process ended"):
        client.call_tool(process, "die", {}, timeout=20)

    assert time.monotonic() - began < 10
    assert text_of(process, "b") == "b"


def test_a_timeout_leaves_the_process_usable(process: ServerAddress) -> None:
    with pytest.raises(ServerSilent):
        client.call_tool(process, "slow", {}, timeout=1)

    assert text_of(process, "a") == "a"


def test_s40_a_process_gets_nothing_of_our_environment(
    tmp_path: Path, principal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret")
    monkeypatch.setenv("HOME", "/nobody")
    file = tmp_path / "env.json"
    program = f"import json, os, sys; json.dump(dict(os.environ), open({str(file)!r}, 'w')); sys.exit(3)"
    address = process_of("-I", "-c", program, principal=principal, env={"TOKEN": "own"})

    with pytest.raises(McpError):
        client.list_tools(address, timeout=20)

    seen = json.loads(file.read_text())
    assert set(seen) - {"LC_CTYPE"} == {"PATH", "LC_ALL", "TOKEN"}


def test_a_process_that_cannot_start_is_left_alone_for_a_while(tmp_path: Path, principal: str) -> None:
    counted = tmp_path / "starts"
    program = f"open({str(counted)!r}, 'a').write('x'); import sys; sys.exit(1)"
    address = process_of("-c", program, principal=principal)
    for _ in range(5):
        with pytest.raises(McpError):
            text_of(address, "a")

    assert counted.read_text() == "x"


def test_the_last_words_of_a_process_are_in_the_error_without_its_secrets(principal: str) -> None:
    program = "import os, sys; sys.exit('one\\n\\x1b[31mno database; token ' + os.environ['TOKEN'])"
    address = process_of("-c", program, principal=principal, env={"TOKEN": "s3cret-of-it"})

    with pytest.raises(McpError) as raised:
        client.list_tools(address, timeout=20)

    assert "one | no database" in str(raised.value)
    assert "s3cret" not in str(raised.value)


def test_a_program_that_is_not_there_is_told_so(principal: str) -> None:
    with pytest.raises(ServerUnreachable, match="could not be started: No such file or directory"):
        client.list_tools(ServerAddress("stdio", principal, title="It", argv=("/no/such/program",)))


def test_s35_a_line_without_end_ends_the_process(principal: str) -> None:
    program = "import sys\nwhile True: sys.stdout.write('x' * 1000000)"

    with pytest.raises(ServerLost):
        client.list_tools(process_of("-c", program, principal=principal), timeout=30)


def test_s35_a_line_of_too_many_parts_ends_the_process(principal: str) -> None:
    program = "print('[' * 500000, flush=True); input()"

    with pytest.raises(ServerLost):
        client.list_tools(process_of("-c", program, principal=principal), timeout=30)


def test_a_process_that_prints_a_greeting_first_is_understood(tmp_path: Path, principal: str) -> None:
    program = tmp_path / "greeting.py"
    program.write_text(
        f"import runpy\nprint('Welcome!', flush=True)\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')"
    )

    assert text_of(process_of(program, principal=principal), "a") == "a"


def test_an_idle_process_is_ended(process: ServerAddress, settings: Any, tmp_path: Path) -> None:
    assert text_of(process, "a") == "a"

    pid = pid_of(process)
    settings.TOOLHUB_MCP_IDLE_SECONDS = 0

    async def let_go() -> None:
        await exchanges.pool().let_go_of_idle()

    background.run(let_go(), seconds=5)
    assert wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_full_house_closes_who_is_idle_and_refuses_where_nobody_is(
    principal: str, settings: Any, script: Script
) -> None:
    settings.TOOLHUB_MCP_SESSIONS = 1
    client.close()
    first = process_of(SCRIPT, principal=principal)
    second = process_of(SCRIPT, principal=principal + " 2")
    assert text_of(first, "a") == "a"
    assert text_of(second, "b") == "b"

    def hold() -> None:
        with suppress(McpError):
            client.call_tool(second, "slow", {}, timeout=4)

    holding = threading.Thread(target=hold)
    holding.start()
    time.sleep(0.3)

    with pytest.raises(ServerBusy, match="All 1 sessions"):
        text_of(first, "c")
    holding.join()


def test_one_owner_takes_at_most_half_of_the_sessions(principal: str, settings: Any) -> None:
    settings.TOOLHUB_MCP_SESSIONS = 2
    client.close()
    first, second = (process_of(SCRIPT, principal=f"{principal} {each}", owner="acme") for each in (1, 2))
    other = process_of(SCRIPT, principal=principal, owner="globex")
    text_of(first, "a")

    def hold() -> None:
        with suppress(McpError):
            client.call_tool(first, "slow", {}, timeout=5)

    holding = threading.Thread(target=hold)
    holding.start()
    time.sleep(0.3)
    with pytest.raises(ServerBusy, match="All 1 sessions"):
        text_of(second, "b")
    assert text_of(other, "c") == "c"
    holding.join()


def test_a_fork_makes_its_own_loop_and_its_own_sessions(process: ServerAddress) -> None:
    assert text_of(process, "a") == "a"
    before = pid_of(process)
    read, write = os.pipe()

    pid = os.fork()
    if pid == 0:  # the child may only leave by _exit
        try:
            os.write(write, text_of(process, "from the child").encode())
            client.close()
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)

    assert said == "from the child"
    assert text_of(process, "b") == "b"
    assert pid_of(process) == before


# -- What one server needs --------------------------------------------------------------------------------------------

#: Waits as long as its argument says, and is then the process of `scripted.py`.
SLEEPER = "import runpy, sys, time; time.sleep(float(sys.argv[1])); runpy.run_path(sys.argv[2], run_name='__main__')"
#: Answers `initialize` with a version that nobody knows, whatever is offered.
UNKNOWN = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "2031-01-01", "capabilities": {}, "serverInfo": {"name": "new", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""


@pytest.mark.parametrize(("seconds", "answers"), [(1, False), (30, True)])
def test_a_process_may_take_as_long_to_start_as_is_said_of_it(principal: str, seconds: int, answers: bool) -> None:
    address = process_of("-c", SLEEPER, "3", SCRIPT, principal=principal, start_seconds=seconds)

    if answers:
        assert len(client.list_tools(address).tools) == 3
    else:
        with pytest.raises(ServerSilent, match="1 s"):
            client.list_tools(address)


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", OLD, MODERN])
def test_a_pinned_version_is_spoken_and_no_other(address: ServerAddress, process: ServerAddress, version: str) -> None:
    for server in (address, process):
        pinned = replace(server, pinned=version)

        assert client.list_tools(pinned).protocol == version
        assert text_of(pinned, "halibut") == "halibut"


def test_a_pin_that_was_changed_counts_at_the_next_call(process: ServerAddress) -> None:
    told = [client.list_tools(replace(process, pinned=version)).protocol for version in ("", OLD, "2025-06-18", "")]

    assert told == [MODERN, OLD, "2025-06-18", MODERN]


def test_a_pinned_version_that_the_server_does_not_speak_is_told(old_address: ServerAddress) -> None:
    with pytest.raises(AnswerRefused, match=f"Version {MODERN} .* is pinned"):
        client.list_tools(replace(old_address, pinned=MODERN))


def test_a_version_that_nobody_knows_is_named_with_those_that_are_known(principal: str) -> None:
    address = process_of("-c", UNKNOWN, principal=principal)

    with pytest.raises(AnswerRefused, match=f"2031-01-01.*{MODERN}"):
        client.list_tools(address)
    with pytest.raises(AnswerRefused, match=r"pinned .* speaks 2031-01-01"):
        client.list_tools(replace(address, pinned=OLD))
