"""A tool whose far side answers when a test lets it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from capabilities.models import Agent
from tests.capabilities.running.kinds.far import Far
from tests.capabilities.running.mcp_client.scripted import Script, text_result
from tests.cast import give_tool

NAME = "mcp__far__do"


class FarSide:
    """In the desk's hands; it answers when it is let."""

    def __init__(self, agent: Agent, script: Script, url: str) -> None:
        self.organisation = agent.organisation
        self.may_answer = threading.Event()
        self.was_called = threading.Event()
        script.tool("do", self.answer)
        self.answers: Any = text_result("heard")
        give_tool(agent, Far(agent.organisation, url).tool, position=9)

    async def answer(self, params: Any) -> Any:
        self.was_called.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.02)
        return self.answers
