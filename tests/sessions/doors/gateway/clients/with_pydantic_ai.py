"""pydantic-ai's Agent with OpenAIChatModel and OpenAIResponsesModel."""

from __future__ import annotations

import asyncio

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks

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
        history: list[ModelMessage] = []
        for question in task.questions:
            history += await _talk(agent, question, history, task, shown)


async def _talk(
    agent: Agent, question: str, history: list[ModelMessage], task: Task, shown: Shown
) -> list[ModelMessage]:
    """The new messages."""
    if not task.streams:
        async with asyncio.timeout(task.patience):
            run = await agent.run(question, message_history=history)
        replies = [message for message in run.new_messages() if isinstance(message, ModelResponse)]
        shown.text += "".join(reply.text or "" for reply in replies)
        shown.tokens = run.response.usage.total_tokens
        return run.new_messages()
    async with agent.run_stream(question, message_history=history) as stream:
        async for piece in stream.stream_text(delta=True, debounce_by=None):
            shown.text += piece
            if task.leaves:
                return []
        shown.tokens = stream.response.usage.total_tokens
        return stream.new_messages()


if __name__ == "__main__":
    answer_tasks(answer)
