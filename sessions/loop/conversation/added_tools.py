"""Loading mode `native`: what is loaded is added to the conversation, and what was sent before stays byte for byte.

base      the tools of an agent's first call in a session stand in `tools`, and go on standing there
added     what it loads later is an item of the conversation, stored as a step: behind the results of the calls that
          loaded it, or in front of the message where it was loaded between two turns. Each later request repeats it
searched  in loading mode `native_search`, namespaces stand in `tools` too, and the provider finds tools in these: they
          are no loads, and stand where the provider says them, among what goes back unread with its reply
words     a tool that is unloaded stays in the prefix, and a call of it is refused: the model reads that beside
anew      where that cannot go on, all tools stand in `tools` again, as a new base, with an event that says why

What may be called is the selection's to say, as in any mode. A tool is never declared in both places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from capabilities.choosing.pipeline.candidates import Candidate
from capabilities.choosing.pipeline.permissions import permissions_at_version
from capabilities.choosing.pipeline.policies import policies_for
from capabilities.choosing.pipeline.specs import current_specs
from capabilities.choosing.pipeline.stages import LOADABLE_STAGES, narrowed
from capabilities.contract.wire import names_in, namespaces_in, searched_part
from capabilities.models import LoadingMode
from sessions.loop.clients.requests import TOOLS
from sessions.loop.clients.responses import added_tools, words_beside
from sessions.loop.conversation.next_call import conversation
from sessions.loop.conversation.prefix import line_marks, model_mark
from sessions.loop.conversation.running import RunningTurn
from sessions.loop.conversation.window import Conversation, TooLong
from sessions.models import Step, ToolSet, TurnEvent
from sessions.selection.queries import Selection, searches_in, situation_of
from sessions.selection.tool_sets import keep_tool_set, tool_set_of
from sessions.selection.unattended import why_asks_in
from sessions.turns import ledger

#: Names that an event and a line of the chat tell.
NAMES_TOLD = 20
UNAVAILABLE = "These tools are not available any more, and a call of one is refused: {names}."
AVAILABLE_AGAIN = "These tools are available again: {names}."


@dataclass(frozen=True)
class Added:
    """One step that added to the conversation: tools, or words about them alone."""

    step_id: int
    tool_set: ToolSet | None


@dataclass(frozen=True)
class ShownTools:
    """Tools that a model was shown in a session, and words about them, in the order of its requests."""

    #: Which model it is, as `model_mark` says.
    model: str
    base: ToolSet
    added: tuple[Added, ...] = ()
    #: Names that were declared and that it was told not to call.
    unavailable: frozenset[str] = frozenset()

    @property
    def steps(self) -> frozenset[int]:
        """Keys of the steps that its requests repeat."""
        return frozenset(each.step_id for each in self.added)

    @property
    def tool_sets(self) -> list[ToolSet]:
        return [self.base, *(each.tool_set for each in self.added if each.tool_set is not None)]

    @property
    def declared(self) -> dict[str, int]:
        """The version of each tool that its requests declare, by name."""
        return dict(chain.from_iterable(_declared(each) for each in self.tool_sets))

    @property
    def tokens(self) -> int:
        """Tokens of all definitions, wherever they stand."""
        return sum(each.tokens for each in self.tool_sets)

    @property
    def marks(self) -> dict[str, Any]:
        """The line as the session keeps it."""
        added = [[each.step_id, each.tool_set.pk if each.tool_set else None] for each in self.added]
        return {
            "model": self.model,
            "base": self.base.pk,
            "added": added,
            "unavailable": sorted(self.unavailable),
        }


def line_for(turn: RunningTurn, tool_set: ToolSet, selection: Selection | None = None) -> ShownTools | None:
    """Return the line with which the next call of an agent that adds tools gets this selection; None for any other
    agent, and where its model does not take that, or a client of the gateway brought tools, which an event says once a
    turn.

    `tool_set` is the stored selection, and `selection` itself is given where it is new: the part of it that the model
    has not seen yet is stored as a step then. Queries: none for what this process has read lately; those of the rights
    of tools that fell out of the selection; one for the event.
    """
    if not LoadingMode(turn.row.agent.loading_mode).is_native:
        return None
    if because := "client_tools" if tool_set.client_tools else turn.model.why_no_added_tools:
        payload = {"because": because, "mode": str(LoadingMode.SAME_RUN), "model": turn.model.name}
        _note_once(turn, "native_unavailable", payload)
        return None
    last = _last_line(turn)
    if last is None or not last.base.version_ids:
        return ShownTools(model_mark(turn.model), tool_set)
    if because := _why_anew(turn, last, tool_set, is_new=selection is not None):
        return _anew(turn, last, tool_set, because)
    return last if selection is None else _grown(turn, last, tool_set, selection)


def in_conversation(
    turn: RunningTurn, tool_set: ToolSet, line: ShownTools | None
) -> tuple[Conversation, ShownTools | None]:
    """The conversation with what was added to it, and the line that it carries: where an item would fall out with the
    turns that are cut, the tools are declared anew. Raises TooLong."""
    if line is None:
        words = tool_set.instructions
        return conversation(turn, tool_tokens=tool_set.tokens, instructions=words), None
    turns_cut = 0
    try:
        talk = conversation(turn, tool_tokens=line.tokens, instructions=line.base.instructions, added=line.steps)
        if line.steps == {each["step"] for each in talk.messages if each["role"] == TOOLS}:
            return talk, line
        turns_cut = 0 if talk.parts_cut else talk.turns_cut
    except TooLong:
        if line.tokens <= tool_set.tokens:
            raise
    line = _anew(turn, line, tool_set, "history_cut")
    talk = conversation(turn, tool_tokens=line.tokens, instructions=line.base.instructions)
    return replace(talk, turns_cut=talk.turns_cut + turns_cut), line


def _last_line(turn: RunningTurn) -> ShownTools | None:
    """Return the line that the agent's last call in the session carried, with the steps that this turn stored since and
    no call carried yet: a worker died in between. None where there is no such call, or its line is not to be found."""
    marks, organisation = line_marks(turn.row), turn.row.organisation_id
    base = tool_set_of(marks["base"], organisation) if marks else None
    if base is None:
        return None
    added = [Added(step, tool_set_of(key, organisation) if key is not None else None) for step, key in marks["added"]]
    line = ShownTools(marks["model"], base, tuple(added), frozenset(marks["unavailable"]))
    begun = turn.steps.replies[-1].index if turn.steps.replies else 0
    for step in turn.steps.added:
        if step.index > begun and step.pk not in line.steps:
            unavailable = frozenset((step.structured or {}).get("unavailable", ()))
            line = replace(line, added=(*line.added, Added(step.pk, step.tool_set)), unavailable=unavailable)
    return line


# -- Anew -------------------------------------------------------------------------------------------------------------


def _why_anew(turn: RunningTurn, line: ShownTools, tool_set: ToolSet, *, is_new: bool) -> str:
    """Return why the line cannot go on with these tools, in a word; empty where it can."""
    declared, wanted = line.declared, dict(_declared(tool_set))
    if line.model != model_mark(turn.model):
        return "model"
    if not namespaces_in(line.base.wire).keys().isdisjoint(wanted):
        return "loaded"
    if _searched(line.base) != _searched(tool_set):
        return "changed"
    if any(declared.get(name, version) != version for name, version in wanted.items()):
        return "changed"
    if len(declared.keys() | wanted.keys()) + _entries(tool_set) > turn.model.tool_limit:
        return "tool_limit"
    fallen = [version for name, version in declared.items() if name not in wanted]
    if is_new and fallen and not _may_be_sent(turn, fallen):
        return "withdrawn"
    return ""


def _may_be_sent(turn: RunningTurn, version_ids: list[int]) -> bool:
    """Return whether each of these versions, which the selection does not have, is as it was, and still one that the
    member may use and the provider may see. Two queries at most."""
    specs = current_specs(version_ids, organisation_id=turn.row.organisation_id, at=turn.registry_version)
    permissions, at = permissions_at_version(turn.row.membership_id)
    situation = situation_of(
        turn.row.session,
        turn.row.agent,
        permissions,
        policies=policies_for(permissions, at),
        model=turn.model,
        why_asks=why_asks_in(turn.row.session, turn.row.agent, turn.model, at=at) if turn.row.is_unattended else None,
        at=at,
    )
    kept, _ = narrowed(situation, [Candidate(each, "") for each in specs], LOADABLE_STAGES)
    return len(kept) == len(version_ids)


def _anew(turn: RunningTurn, line: ShownTools, tool_set: ToolSet, because: str) -> ShownTools:
    """A line that begins with all tools in `tools`; with an event, but where another model gets a line without more."""
    if line.added or because != "model":
        payload = {"because": because, "count": len(tool_set.version_ids), "tokens": tool_set.tokens}
        ledger.write_event(turn.claim, "tools_declared_anew", payload)
    return ShownTools(model_mark(turn.model), tool_set)


# -- Added ------------------------------------------------------------------------------------------------------------


def _grown(turn: RunningTurn, line: ShownTools, tool_set: ToolSet, selection: Selection) -> ShownTools:
    """The line with the tools that it does not declare yet, and with words on those that came and went; stored as a
    step where there is something to say."""
    declared, wanted = line.declared.keys(), dict(_declared(tool_set)).keys()
    new, unavailable = wanted - declared, frozenset(declared - wanted)
    if not new and unavailable == line.unavailable:
        return line
    step = _stored(turn, selection, new, line.unavailable, unavailable)
    return replace(line, added=(*line.added, Added(step.pk, step.tool_set)), unavailable=unavailable)


def _stored(
    turn: RunningTurn,
    selection: Selection,
    new: Iterable[str],
    before: frozenset[str],
    unavailable: frozenset[str],
) -> Step:
    tools = tuple(tool for tool in selection.tools if tool.name in set(new))
    names = [tool.name for tool in tools]
    added = keep_tool_set(replace(selection, tools=tools, namespaces=()), turn.row.organisation_id) if tools else None
    words = _words(added.instructions if added else "", unavailable - before, before - unavailable)
    items = [added_tools(added.wire)] if added else []
    step = ledger.add_tools(
        turn.claim,
        {"count": len(names), "tools": names[:NAMES_TOLD], "unavailable": sorted(unavailable)[:NAMES_TOLD]},
        round=turn.steps.replies[-1].round if turn.steps.replies else 0,
        tool_set=added,
        tool_tokens=added.tokens if added else 0,
        text=words,
        extras="\n".join([*items, words_beside(words)] if words else items),
        display=", ".join(names)[:300],
        structured={"added": names, "unavailable": sorted(unavailable)},
        origin=turn.model.origin,
    )
    turn.steps.add(step)
    return step


def _words(instructions: str, gone: Iterable[str], back: Iterable[str]) -> str:
    """Build the text that the model reads beside the definitions; empty for nothing."""
    paragraphs = [instructions] if instructions else []
    for sentence, names in ((UNAVAILABLE, sorted(gone)), (AVAILABLE_AGAIN, sorted(back))):
        if names:
            paragraphs.append(sentence.format(names=", ".join(names)))
    return "\n\n".join(paragraphs)


def _declared(tool_set: ToolSet) -> Iterable[tuple[str, int]]:
    """Each tool of the set: its name and its version."""
    return zip(names_in(tool_set.wire), tool_set.version_ids, strict=True)


def _searched(tool_set: ToolSet) -> tuple[str, list[int]]:
    """Return the part of the set that the provider searches: namespaces with definitions, and the versions of these."""
    return searched_part(tool_set.wire), tool_set.searched_ids


def _entries(tool_set: ToolSet) -> int:
    """Return the number of entries of `tools` behind the functions: the namespaces, and the one that searches them."""
    spaces = set(namespaces_in(tool_set.wire).values())
    return len(spaces) + 1 if spaces else 0


def note_unsearched(turn: RunningTurn) -> None:
    """Say once a turn, as an event, why the provider does not search what the agent could load; nothing for an agent
    that does not ask for that. One query at most."""
    if turn.row.agent.loading_mode == LoadingMode.NATIVE_SEARCH and not searches_in(turn.row, turn.model):
        payload = {"because": turn.model.why_no_tool_search or "client_tools", "model": turn.model.name}
        _note_once(turn, "search_unavailable", payload)


def _note_once(turn: RunningTurn, event: str, payload: Mapping[str, Any]) -> None:
    """Write the event where the turn has none of its kind. One query."""
    if not TurnEvent.objects.filter(turn=turn.row, type=event).exists():
        ledger.write_event(turn.claim, event, payload)
