"""Names of imported tools: at most 64 characters that every provider takes, the same at each reading. Pure."""

from __future__ import annotations

import hashlib
import re

from capabilities.contract.ascii_names import ascii_name
from capabilities.contract.warnings import DefinitionWarning

MAX_NAME = 64
#: Characters of the hash that a name which was cut or is taken ends in.
HASH = 6
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]+")


def tool_name(text: str) -> str:
    """A tool's name for this text: other characters become _, and what is too long ends in a hash of the whole."""
    name = _REFUSED.sub("_", ascii_name(text)).strip("_") or "tool"
    return name if len(name) <= MAX_NAME else with_hash(name, text)


def mcp_tool_name(server: str, tool: str) -> str:
    """Return mcp__server__tool, so that two servers may have tools of one name, and neither can imitate the other."""
    return tool_name(f"mcp__{_part(server)}__{_part(tool)}")


def _part(text: str) -> str:
    return _REFUSED.sub("_", ascii_name(text))


def name_warnings(original: str) -> tuple[DefinitionWarning, ...]:
    """Return the warning for a name in another alphabet: the source knows it by that, and a model by the one here."""
    if original.isascii():
        return ()
    text = f"Its name is {original[:100]}: it is sent so, and written in other letters here."
    return (DefinitionWarning("name_written", text),)


def with_prefix(prefix: str, name: str) -> str:
    return tool_name(f"{prefix}__{name}") if prefix else name


def with_hash(name: str, whole: str) -> str:
    """The name with a hash of `whole` at its end, within what a name may have."""
    digest = hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:HASH]
    return f"{name[: MAX_NAME - HASH - 1].rstrip('_')}_{digest}"
