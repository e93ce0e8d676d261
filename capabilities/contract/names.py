"""Names that people and models tell things by: which two are too alike, and which are kept for their makers."""

from __future__ import annotations

import re
import unicodedata

#: Letters that look like Latin ones, and are others. Of the alphabets that are on most keyboards.
_LOOKALIKES = str.maketrans(
    "авекмнорстухіјѕԁԛԝһӏ" + "αβεικνορτυχγ" + "ıłøđ",
    "abekmhopctyxijsdqwhl" + "abeikvoptuxy" + "ilod",
)
#: Beginnings of the names of imported tools of MCP servers, and of tools that agents made.
MCP_PREFIX, AGENT_PREFIX = "mcp__", re.compile(r"agent_.*__")


def name_key(name: str) -> str:
    """Return the key that two names share where one is taken for the other: compatible forms, case, marks and
    lookalikes aside."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(each for each in plain if unicodedata.category(each)[0] not in "MC")
    return " ".join(seen.translate(_LOOKALIKES).split())


def reserved_for(name: str, *, server: str = "", agent: str = "") -> str:
    """Return the kind of tools that this name is reserved for, in words; "" where this maker may give it.

    `server` is the name of the MCP server that runs it, `agent` the short name of the agent that made it.
    """
    key = name_key(name)
    if key.startswith(MCP_PREFIX) and not (server and name.startswith(f"{MCP_PREFIX}{server}__")):
        return "tools of an MCP server"
    if AGENT_PREFIX.match(key) and not agent:
        return "tools that agents make"
    return ""
