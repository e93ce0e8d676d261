"""Messages that an empty chat proposes: each can be served by a tool that the next turn is sent."""

from __future__ import annotations

from collections.abc import Iterable

#: Messages that show a tool at work, the plainest first. A tool that is missing has no example.
EXAMPLES = {
    "task_create": "Add a task: buy milk tomorrow",
    "task_list": "What is on my list?",
    "reminders_add": "Remind me to call Ann tomorrow at 9",
    "calendar_list": "What is on my calendar?",
    "grocery_add": "Add eggs and flour to the grocery list",
    "memory_store": "Remember that I like tea",
    "weather_current": "What's the weather in Berlin?",
    "web_search": "Search the web for solar eclipses",
    "file_list": "List the files",
    "calculator": "What is 12 * 17?",
    "current_time": "What time is it?",
}
MOST = 4


def examples_for(tools: Iterable[str]) -> list[str]:
    """Return at most four messages for the tools of these names; none where there is no example for any."""
    sent = set(tools)
    return [message for name, message in EXAMPLES.items() if name in sent][:MOST]
