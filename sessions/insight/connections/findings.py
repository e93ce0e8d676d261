"""Findings of a test of a model or of a provider, as stored with the test and shown on pages and over REST.

`{"checks": [{"name", "works", "detail"}], "models": [{"name", "context_window"}], "page"}`: a detail is a sentence for
people and may hold text from outside; a model's name is text from outside; `page` is a page of ours that helps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from capabilities.common.text import storable
from capabilities.common.visible import in_reading_order
from capabilities.contract.wire import canonical_json
from capabilities.language_models.providers.lessons import Lesson
from capabilities.language_models.providers.listings import is_listed
from capabilities.language_models.providers.resolve import ResolvedModel, model_family
from capabilities.running.mcp_client.answers import Listing as ToolListing
from sessions.loop.clients.listing import ListedModel
from sessions.loop.clients.replies import Call, Reply
from sessions.loop.clients.usage import says_cached
from toolhub.bounded_json import load_json

#: The tool of a test's call, which is never run.
TOOL = "note_word"
TOOLS = canonical_json(
    [
        {
            "type": "function",
            "function": {
                "name": TOOL,
                "description": "Note one word.",
                "parameters": {
                    "type": "object",
                    "properties": {"word": {"type": "string", "description": "The word to note."}},
                    "required": ["word"],
                    "additionalProperties": False,
                },
            },
        }
    ]
)
QUESTION = (
    f'Call the tool {TOOL} twice, both calls in this one reply: once with the word "red", once with the word "blue".'
)
#: Models of a list that are kept, and characters of a detail.
MAX_MODELS = 500
MAX_DETAIL = 500
#: Tools of a server that a detail names.
MAX_NAMES = 10


@dataclass(frozen=True)
class Check:
    """One thing that was tried. `works` is None where it is only said, or could not be seen."""

    name: str
    works: bool | None
    detail: str


@dataclass(frozen=True)
class Listing:
    """A provider's models, or in `reason` why they could not be read."""

    models: Sequence[ListedModel] = ()
    reason: str = ""

    @property
    def names(self) -> frozenset[str]:
        return frozenset(model.name for model in self.models)


@dataclass(frozen=True)
class Result:
    """Result of a test: in `reason` why it failed, "" where it works."""

    reason: str = ""
    checks: Sequence[Check] = ()
    models: Sequence[ListedModel] = field(default_factory=tuple)
    #: The page of ours that helps, such as the one to connect an account on; empty for most.
    page: str = ""

    def findings(self) -> dict[str, Any]:
        checks = [asdict(check) | {"detail": storable(check.detail, MAX_DETAIL)} for check in self.checks]
        found: dict[str, Any] = {"checks": checks, "models": [asdict(model) for model in self.models[:MAX_MODELS]]}
        return found | ({"page": self.page} if self.page else {})


def checks_of_reply(reply: Reply, model: ResolvedModel) -> list[Check]:
    """Read the checks of a model from its answer to QUESTION."""
    calls = [call for call in reply.calls if call.name == TOOL]
    streams = "The reply came in pieces." if reply.is_streamed else "The reply came whole: people see it at its end."
    checks = [
        Check("Streaming", reply.is_streamed, streams),
        _tools_check(calls),
        _parallel_check(calls, model),
        _usage_check(reply),
    ]
    if reply.usage is not None:
        reports = says_cached(reply.usage)
        detail = f"{reply.usage.cached:,} of this call." if reports else "The provider does not say them."
        checks.append(Check("Cached tokens", reports or None, detail))
    return checks


def checks_of_model(model: ResolvedModel, lessons: Iterable[Lesson], listing: Listing) -> list[Check]:
    """Return checks of the way it was asked, of what that taught, and of whether the provider lists it."""
    chosen = model.chosen_dialect
    checks = [Check("API", None, f"{chosen.dialect.label}. {chosen.reason}")]
    checks += [Check("Learned", None, lesson.summary) for lesson in lessons]
    if listing.reason:
        checks.append(Check("List of models", None, listing.reason))
    elif model.provider.base_url and model.vendor.lists_models:
        listed = is_listed(model.name, listing.names, {model_family(each) for each in listing.names})
        others = f"{len(listing.models):,} models are listed"
        checks.append(Check("List of models", listed, f"{others}, this one {'too' if listed else 'not'}."))
    return checks


def checks_of_listing(listing: ToolListing) -> list[Check]:
    """Read the checks of a server from its answer to the question for its tools."""
    info = listing.server_info
    name, version = (" ".join(in_reading_order(str(info.get(key) or "")).split()) for key in ("name", "version"))
    unusable = [tool.name for tool in listing.tools if tool.unusable]
    count = f"{len(listing.tools):,} tool{'' if len(listing.tools) == 1 else 's'}"
    names = ", ".join(in_reading_order(tool.name) for tool in listing.tools[:MAX_NAMES])
    more = f" and {len(listing.tools) - MAX_NAMES:,} more" if len(listing.tools) > MAX_NAMES else ""
    checks = [
        Check("Reached", True, "It answered."),
        Check("Protocol", None, f"MCP {listing.protocol}."),
        Check("It calls itself", None, f"{name or 'nothing'}{f', version {version}' if version else ''}."),
        Check("Tools", bool(listing.tools), f"{count}: {names}{more}." if names else "It offers none."),
    ]
    if unusable:
        checks.append(Check("Cannot be used", False, f"{', '.join(unusable[:MAX_NAMES])}: malformed definitions."))
    if listing.is_cut:
        checks.append(Check("List", False, "It is longer than is read."))
    changes = "It says when its list changes." if listing.tells_changes else "It does not say when its list changes."
    return [*checks, Check("Changes", None, changes)]


def _tools_check(calls: Sequence[Call]) -> Check:
    if not calls:
        return Check("Tools", False, "It answered without calling the tool that it was asked to call.")
    if not all(_is_word(call.arguments) for call in calls):
        return Check("Tools", False, "It called the tool with arguments that cannot be used.")
    return Check("Tools", True, "It called the tool that it was asked to call.")


def _parallel_check(calls: Sequence[Call], model: ResolvedModel) -> Check:
    if model.parallel_tool_calls is False:
        return Check("Parallel calls", None, "Switched off: one call in a reply.")
    if len(calls) > 1:
        return Check("Parallel calls", True, f"{len(calls)} calls came in one reply.")
    return Check("Parallel calls", None, "Not seen: it was asked for two calls in one reply.")


def _usage_check(reply: Reply) -> Check:
    if reply.usage is None:
        return Check("Usage", False, "The provider did not count; tokens are our own estimate.")
    return Check("Usage", True, f"{reply.usage.input:,} tokens in, {reply.usage.output:,} out.")


def _is_word(arguments: str) -> bool:
    try:
        return isinstance(load_json(arguments).get("word"), str)
    except (ValueError, AttributeError):
        return False
