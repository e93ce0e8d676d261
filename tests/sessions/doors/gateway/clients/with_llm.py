"""Simon Willison's llm, with a model of the kind that `extra-openai-models.yaml` makes."""

from __future__ import annotations

import signal
from typing import Any

import llm
from llm.default_plugins.openai_models import Chat

from tests.sessions.doors.gateway.clients.speaking import WEATHER, Shown, Task, answer_tasks


def answer(task: Task, shown: Shown) -> None:
    def weather(town: str) -> str:
        """Weather of a town."""
        shown.towns.append(town)
        return WEATHER

    model = Chat(task.model, key=task.token, api_base=task.base_url, supports_tools=True)  # type: ignore[no-untyped-call]
    tools = [llm.Tool.function(weather, name=task.tool)] if task.tool else []  # type: ignore[no-untyped-call]
    conversation = model.conversation(tools=tools)
    # It knows no limit of time: its user ends it.
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, task.patience or 0)
    try:
        for question in task.questions:
            talk(conversation.chain(question, stream=task.streams, key=task.token), task, shown)
    except KeyboardInterrupt:
        shown.message = "ended"


def talk(chain: Any, task: Task, shown: Shown) -> None:
    for response in chain.responses():
        for piece in response:
            shown.text += piece
            if task.leaves and shown.text:
                return
        usage = response.usage()
        shown.tokens = (usage.input or 0) + (usage.output or 0)


if __name__ == "__main__":
    answer_tasks(answer)
