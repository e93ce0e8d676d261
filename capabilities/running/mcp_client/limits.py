"""Limits of what is taken from a server: sizes, numbers and times."""

from __future__ import annotations

#: Bytes of one message, and of one answer over HTTP. A file of 5 MB is 6.7 MB in base64.
MAX_ANSWER = 8_000_000
#: Tools of one list, and pages that it may come in.
MAX_TOOLS = 1_000
MAX_PAGES = 100
#: Calls of one principal that run at one server at once; more wait.
CALLS_PER_SERVER = 8
#: Seconds to connect, or to start a process, and to agree on a version: usual, and at most for one server.
CONNECT_SECONDS = 20
MOST_CONNECT_SECONDS = 90
#: Seconds after which the version that a server spoke is asked again.
PROTOCOL_SECONDS = 3_600.0
#: Seconds before a server that could not be reached is tried again: first, and at most.
FIRST_BACKOFF = 1.0
MOST_BACKOFF = 60.0
#: Values of one answer over HTTP, which is counted as it comes: signs within its strings count too.
MAX_SIGNS = 150_000
