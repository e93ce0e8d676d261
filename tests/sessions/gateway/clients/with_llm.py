"""Simon Willison's llm, with a model of the kind that `extra-openai-models.yaml` makes."""

from __future__ import annotations

import llm
from llm.default_plugins.openai_models import Chat

from tests.sessions.gateway.clients.speaking import QUESTION, WEATHER, Shown, Task, answer_tasks


def answer(task: Task, shown: Shown) -> None:
    def weather(town: str) -> str:
        """Weather of a town."""
        shown.towns.append(town)
        return WEATHER

    model = Chat(task.model, key=task.token, api_base=task.base_url, supports_tools=True)  # type: ignore[no-untyped-call]
    tools = [llm.Tool.function(weather, name=task.tool)] if task.tool else []  # type: ignore[no-untyped-call]
    chain = model.chain(QUESTION, stream=task.streams, tools=tools, key=task.token)
    for response in chain.responses():
        for piece in response:
            shown.text += piece
            if task.leaves and shown.text:
                return
        usage = response.usage()
        shown.tokens = (usage.input or 0) + (usage.output or 0)


if __name__ == "__main__":
    answer_tasks(answer)
