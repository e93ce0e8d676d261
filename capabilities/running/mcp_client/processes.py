"""A server that is a process of this machine: newline-separated JSON over its standard input and output.

The SDK's own transport hands on part of our environment, reads lines of any length, and cannot hold its error output:
this one starts exactly what the operator's file says, with nothing else of ours, and bounds both.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from capabilities.running.mcp_client.limits import MAX_ANSWER
from capabilities.running.mcp_client.server_addresses import ServerAddress
from capabilities.running.mcp_client.words import readable
from toolhub.bounded_json import TooMuchJson, check_json

logger = logging.getLogger(__name__)

#: Bytes of its error output that are kept, the last ones.
MAX_STDERR = 20_000
#: Lines and characters of that which go into an error.
LAST_LINES, MAX_LAST_WORDS = 3, 300
#: Seconds that it has to end by itself once its input is closed, and again once it was asked to.
END_SECONDS = 2.0
LOOK_EVERY = 0.1

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ServerProcess:
    """One process, and the end of what it wrote to its error output."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._stderr = bytearray()

    @property
    def pid(self) -> int:
        return self.process.pid

    def note_stderr(self, piece: bytes) -> None:
        self._stderr += piece
        del self._stderr[:-MAX_STDERR]

    @property
    def stderr(self) -> str:
        return self._stderr.decode(errors="replace")

    @property
    def last_words(self) -> str:
        """The end of its error output in one line, as people may read it."""
        lines = [line.strip() for line in readable(self.stderr)[0].splitlines() if line.strip()]
        return " | ".join(lines[-LAST_LINES:])[-MAX_LAST_WORDS:]

    def log_last_words(self, title: str) -> None:
        """Log the end of the error output of a process that ended by itself with an error."""
        status = self.process.returncode
        if status is not None and status > 0:
            logger.warning("The process of %s ended with status %s: %s", title, status, self.stderr[-2_000:])

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None


@asynccontextmanager
async def process_streams(address: ServerAddress) -> AsyncGenerator[tuple[ServerProcess, Incoming, Outgoing]]:
    """The process, started, with its messages both ways. Its whole group is gone on return. Raises OSError."""
    process = await anyio.open_process(
        list(address.argv),
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", **address.env},
        cwd=Path(address.folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    # From here to the task group nothing may wait: a cancelled caller would leave the process behind.
    server = ServerProcess(process)
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read_messages, server, incoming)
        tasks.start_soon(_write_messages, server, outgoing, incoming)
        tasks.start_soon(_read_stderr, server)
        tasks.start_soon(_watch, server, incoming)
        try:
            yield server, read, write
        finally:
            with anyio.CancelScope(shield=True):
                await _end(server)
            tasks.cancel_scope.cancel()
            for stream in (read, write, incoming, outgoing):
                stream.close()


async def _read_messages(server: ServerProcess, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Pass on the messages of a process, a line each, until its output ends or has a line that is not taken."""
    stdout = server.process.stdout
    assert stdout is not None
    rest = bytearray()
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
        while True:
            rest += await stdout.receive(65_536)
            *lines, rest = rest.split(b"\n")
            if len(rest) > MAX_ANSWER or not all(_is_taken(line) for line in lines):
                server.note_stderr(b"\n(a line on its output was longer, or of more values, than is taken)\n")
                break
            for line in lines:
                await _pass_on(server, bytes(line), incoming)
    incoming.close()
    await _drain(stdout)


def _is_taken(line: bytearray) -> bool:
    try:
        check_json(bytes(line), most_bytes=MAX_ANSWER)
    except TooMuchJson:
        return False
    return True


async def _pass_on(
    server: ServerProcess, line: bytes, incoming: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    if not line.strip():
        return
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        # Some print a greeting where messages belong.
        server.note_stderr(b"(on its output, no message) " + line[:500] + b"\n")
        return
    await incoming.send(SessionMessage(message))


async def _write_messages(
    server: ServerProcess,
    outgoing: MemoryObjectReceiveStream[SessionMessage],
    incoming: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    stdin = server.process.stdin
    assert stdin is not None
    try:
        async for message in outgoing:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await stdin.send(text.encode() + b"\n")
    except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        incoming.close()


async def _read_stderr(server: ServerProcess) -> None:
    stderr = server.process.stderr
    assert stderr is not None
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
        while True:
            server.note_stderr(await stderr.receive(65_536))


async def _watch(server: ServerProcess, incoming: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """End the connection with the process: a child of it may hold its output open."""
    while not server.has_ended:
        await anyio.sleep(LOOK_EVERY)
    await anyio.sleep(LOOK_EVERY)  # what it wrote last is still read
    incoming.close()


async def _drain(stream: ByteReceiveStream) -> None:
    """Read a stream to its end, and drop it: a process that cannot write does not end."""
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream, OSError):
        while True:
            await stream.receive(65_536)


async def _end(server: ServerProcess) -> None:
    """Close its input, then ask it to end, then end it: its group, whoever is left of it."""
    if server.process.stdin is not None:
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await server.process.stdin.aclose()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(server.pid, number)
        with anyio.move_on_after(END_SECONDS):
            while not server.has_ended:
                await anyio.sleep(0.01)
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(server.pid, signal.SIGKILL)  # what it started itself
    for stream in (server.process.stdout, server.process.stderr):
        if stream is not None:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                await stream.aclose()
    # Nothing public closes it; it would warn when it is collected, while a child holds an end of a pipe.
    transport = getattr(getattr(server.process, "_process", None), "_transport", None)
    if transport is not None:
        with suppress(PermissionError):
            transport.close()
