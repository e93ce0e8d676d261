"""Which tools a turn asked for that its message did not call for: found by `search_tools`, or called by their name.

They come with the turn's next model call, so that a wrong guess of routing costs a round and not the task.
"""

from __future__ import annotations

from collections.abc import Iterable

from capabilities.contract.loading import SEARCH_TOOLS
from sessions.models import Step, StepStatus
from toolhub.bounded_json import load_json

#: What an answer of ours says, beside the name, of a tool that comes with the next model call.
COMES_WITH = "comes_with"
NEXT_STEP = "your next step"


def wanted_in(calls: Iterable[Step]) -> frozenset[str]:
    """Names that our own answers to these calls promise for the next model call: refusals, and finds of `search_tools`.

    What else a tool answers promises nothing.
    """
    return frozenset(name for call in calls for name in _promised(call))


def _promised(call: Step) -> Iterable[str]:
    is_search = call.tool_name == SEARCH_TOOLS and call.status == StepStatus.DONE
    if not (is_search or call.status == StepStatus.REFUSED) or COMES_WITH not in call.result:
        return
    answer = _read(call.result)
    found = answer.get("tools") if is_search else [{**answer, "name": answer.get("tool")}]
    for each in found if isinstance(found, list) else ():
        if isinstance(each, dict) and each.get(COMES_WITH) == NEXT_STEP and isinstance(each.get("name"), str):
            yield each["name"]


def _read(text: str) -> dict[str, object]:
    try:
        found = load_json(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
