"""pydantic-ai's Agent with OpenAIChatModel and OpenAIResponsesModel."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.sessions.gateway.clients.speaking import QUESTION, WEATHER, Shown, Task, answer_tasks

MODELS = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}


def answer(task: Task, shown: Shown) -> None:
    asyncio.run(_answer(task, shown))


async def _answer(task: Task, shown: Shown) -> None:
    def weather(town: str) -> str:
        """Weather of a town."""
        shown.towns.append(town)
        return WEATHER

    async with AsyncOpenAI(base_url=task.base_url, api_key=task.token, max_retries=0) as client:
        model = MODELS[task.api](task.model, provider=OpenAIProvider(openai_client=client))
        tools = [Tool(weather, name=task.tool)] if task.tool else []
        agent = Agent(model, tools=tools)
        if not task.streams:
            async with asyncio.timeout(task.patience):
                run = await agent.run(QUESTION)
            shown.text, shown.tokens = run.output, run.response.usage.total_tokens
            return
        async with agent.run_stream(QUESTION) as stream:
            async for piece in stream.stream_text(delta=True, debounce_by=None):
                shown.text += piece
                if task.leaves:
                    return
            shown.tokens = stream.response.usage.total_tokens


if __name__ == "__main__":
    answer_tasks(answer)
