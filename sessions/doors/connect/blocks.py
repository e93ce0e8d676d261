"""A client's blocks with this service's addresses in them, one target, and a token if there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.conf import settings

from sessions.doors.connect.clients import Block, Client, Protocol
from sessions.doors.connect.queries import Target

#: Placeholder in a block for a token that nobody made yet.
NO_TOKEN = "YOUR_TOKEN"
#: Characters of the name that a server has in its client: some put it before each tool's name, and cut the whole.
MAX_SERVER = 32


@dataclass(frozen=True)
class Connection:
    """Address and name of this service for a client, as its blocks name it."""

    client: Client
    target: Target
    #: Scheme and host of this service.
    origin: str
    token: str = ""

    @property
    def address(self) -> str:
        is_mcp = self.client.protocol is Protocol.MCP
        return f"{self.origin}/mcp/{self.target.address}" if is_mcp else f"{self.origin}/v1"

    @property
    def server(self) -> str:
        """The name that the client gives to it."""
        return f"toolhub-{self.target.short_name}"[:MAX_SERVER].rstrip("-_")

    @property
    def blocks(self) -> Sequence[Block]:
        return [Block(each.title, each.language, self._filled(each.text).rstrip("\n")) for each in self.client.blocks]

    @property
    def pitfalls(self) -> Sequence[str]:
        """Sentences; what stands between backticks is code."""
        found = [self._filled(each) for each in self.client.pitfalls]
        if self.client.protocol is Protocol.MCP:
            found.append(
                f"Where you may use more than {settings.TOOLHUB_MCP_TOOLS} tools at this address, it lists "
                "`search_tools` and `call_tool` in their place, which find and call each of them. A toolkit has fewer."
            )
        if self.client.protocol is Protocol.OPENAI and self.target.address.startswith("gpt-"):
            found.append(
                "Clients take a model whose name begins with `gpt-` for one of OpenAI’s: name the agent otherwise."
            )
        return found

    def _filled(self, text: str) -> str:
        for mark, value in self._values.items():
            text = text.replace(mark, value)
        return text

    @property
    def _values(self) -> Mapping[str, str]:
        return {
            "<v1>": self.address,
            "<mcp>": self.address,
            "<agent>": self.target.address,
            "<server>": self.server,
            "<token>": self.token or NO_TOKEN,
        }
