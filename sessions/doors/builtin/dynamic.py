"""The meta-tools: `load_tools` and others, and `read_result`.

An agent has those that load where it has something to load. They go through the same functions as the browser and the
REST API; each answers with JSON that states the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from django.conf import settings
from django.db.models import F
from pydantic import Field

from capabilities.contract.context import ToolContext, ToolError
from capabilities.contract.loading import CALL_TOOL, LOAD_CATEGORY, LOAD_TOOLS
from capabilities.contract.result_cap import part
from capabilities.models import Agent, LoadingMode
from capabilities.running.registry import CategorySpec, tool
from capabilities.running.sandbox import MAX_CODE, describe_runtime
from sessions.doors.builtin._making import Asked, make_tool
from sessions.loop.conversation.continuations import continuations_of
from sessions.loop.conversation.wanted_tools import NEXT_STEP
from sessions.loop.tools.stored_results import stored_result
from sessions.models import ChatSession, ClientRequest, LoadSource
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import Loadable, LoadInputs, LoadResult, LoadTarget, read_place
from sessions.selection.loading.offered import offered_to
from sessions.selection.loading.queries import loadable_categories
from sessions.selection.loading.search import Hit, How, search_offered, search_place
from sessions.selection.loading.writes import CATEGORY_REQUIRED, By
from toolhub.tenants.models import Membership

CATEGORY = CategorySpec(
    name="dynamic",
    title="Dynamic",
    description="Tools that load and unload other tools in a session.",
    keywords=("load tools", "load category", "more tools"),
    is_core=True,
)
NO_SESSION = "There is no session to load into: this works in a conversation only."

Name = Annotated[str, Field(description="Its name, as list_toolkits gives it", max_length=100)]


@tool(category="dynamic", effect="read", human_format="Listing the toolkits")
def list_toolkits(context: ToolContext) -> dict[str, Any]:
    """List the toolkits that can be loaded in this conversation, with their tools, and which are loaded."""
    if context.session_id is None:
        return {"status": "error", "message": NO_SESSION}
    place = place_of(context)
    reading = read_place(place)
    listed: dict[str, Any] = {"toolkits": [_toolkit(each) for each in reading.loadable]}
    categories = _categories(reading)
    if categories:
        listed["categories"] = categories
    return listed


@tool(category="dynamic", effect="write", on_crash="retry", human_format="Loading {toolkit}")
def load_tools(context: ToolContext, toolkit: Name) -> dict[str, Any]:
    """Load a toolkit, so that its tools can be called. The answer says from when on."""
    if context.session_id is None:
        return {"status": "error", "toolkit": toolkit, "message": NO_SESSION}
    return loading.load(place_of(context), toolkit.strip(), by=by_model(context)).as_dict()


@tool(category="dynamic", effect="write", on_crash="retry", human_format="Unloading {toolkit}")
def unload_tools(
    context: ToolContext,
    toolkit: Name,
    kind: Annotated[
        Literal["any", "toolkit", "category", "tool"], Field(description="Which, where two have this name")
    ] = "any",
) -> dict[str, Any]:
    """Unload a toolkit, or a category, that is not needed any more."""
    if context.session_id is None:
        return {"status": "error", "toolkit": toolkit, "message": NO_SESSION}
    which = "" if kind == "any" else kind
    return loading.unload(place_of(context), toolkit.strip(), by=by_model(context), kind=which).as_dict()


@tool(
    category="dynamic",
    effect="write",
    on_crash="retry",
    human_format="Loading the category {category}",
    complaint=CATEGORY_REQUIRED,
)
def load_tool_category(
    context: ToolContext, category: Annotated[str, Field(description="Name of the category")]
) -> dict[str, Any]:
    """Load a whole category of tools by its name."""
    if context.session_id is None:
        return {"success": False, "error": NO_SESSION}
    member = Membership.objects.get(pk=context.membership_id)
    if category.strip() and not loading.may_load_category(member, category):
        why = f"Access denied: the admin right load_categories is needed for {category.strip()[:100]}."
        return {"success": False, "error": why, "denied_tool": LOAD_CATEGORY}
    return category_result(loading.load_category(place_of(context), category, by=by_model(context)))


@tool(category="dynamic", effect="read", human_format="Looking for a tool: {query}")
def search_tools(
    context: ToolContext,
    query: Annotated[str, Field(description="What the tool should do, or its name", min_length=1, max_length=200)],
    max_results: Annotated[int, Field(ge=1, le=20)] = 5,
) -> dict[str, Any]:
    """Find tools that are not at hand but can be had in this conversation, the best match first."""
    if context.session_id is None:
        return {"status": "error", "message": NO_SESSION}
    place = place_of(context)
    found = _found_by_client(context, place, query, max_results)
    if found is None:
        found = search_place(place, query, max_results, context.turn_id)
    context.promised.update(_next_tools(found))
    return {"tools": [_found(each, place.agent, by_model(context)) for each in found]}


def _next_tools(found: Iterable[Hit]) -> Iterator[str]:
    """Names of the tools that the next model call needs: what was found and left out, or what loads it."""
    loaders = {How.LOAD: LOAD_TOOLS, How.CATEGORY: LOAD_CATEGORY}
    for each in found:
        if each.how == How.LEFT_OUT:
            yield each.candidate.spec.name
        elif each.how in loaders:
            yield loaders[each.how]


@tool(category="dynamic", effect="external", human_format="Calling {name}")
def call_tool(
    context: ToolContext,
    name: Annotated[str, Field(description="Name of the tool, as search_tools gives it", max_length=64)],
    arguments: Annotated[dict[str, Any], Field(description="Its arguments, as its parameters say")] = {},  # noqa: B006
) -> dict[str, Any]:
    """Call a tool that search_tools found."""
    raise ToolError("This works in a conversation only, where the tool itself is called.")


@tool(category="dynamic", effect="read", human_format="Reading on in result {step} from character {offset}")
def read_result(context: ToolContext, step: str, offset: Annotated[int, Field(ge=0)]) -> str:
    """Read on in a result that was cut, with the step and offset that its note gives."""
    if context.session_id is None:
        raise ToolError("There is no conversation whose results could be read.")
    found = stored_result(step, session_id=context.session_id, membership_id=context.membership_id)
    if offset >= len(found):
        raise ToolError(f"Result {step.strip()} has {len(found):,} characters: the offset must be less.")
    return part(found, offset, context.max_result_chars)


def create_dynamic_tool(
    context: ToolContext,
    name: Annotated[str, Field(description="What to call it: letters, digits, _ and -", max_length=64)],
    description: Annotated[str, Field(description="What it does, for the model that will call it", max_length=4_000)],
    implementation: Annotated[str, Field(description="The Python code", max_length=MAX_CODE)],
    input_schema: Annotated[
        dict[str, Any], Field(description='JSON Schema of the arguments: {"type": "object", "properties": {...}}')
    ] = {},  # noqa: B006
    human_readable_format: Annotated[
        str, Field(description="A call in one line for people: Adding {a} and {b}", max_length=300)
    ] = "",
    example: Annotated[
        dict[str, Any] | None, Field(description="Arguments of one call; the tool is tried with them")
    ] = None,
    category: Annotated[str, Field(description="Where it belongs, if not here", max_length=64)] = "",
    inputSchema: Annotated[dict[str, Any], Field(description="Same as input_schema")] = {},  # noqa: B006
    humanReadableFormat: Annotated[str, Field(max_length=300)] = "",
) -> dict[str, Any]:
    schema = input_schema or inputSchema
    line = human_readable_format or humanReadableFormat
    return make_tool(Asked(name, description, schema, implementation, line, category, example), context)


create_dynamic_tool.__doc__ = (
    "Make a tool of your own, in Python. It is checked at once, and can be called after somebody has approved it. "
    "To change one, make it again under its name. " + describe_runtime("monty")
)
tool(
    category="dynamic",
    effect="write",
    on_crash="retry",
    timeout=40.0,
    human_format="Making the tool {name}",
)(create_dynamic_tool)


def place_of(context: ToolContext) -> LoadTarget:
    """Return the session and agent that the call is made for; the caller has seen that it is in a session."""
    assert context.session_id is not None
    session = ChatSession.objects.get(pk=context.session_id)
    # By the turn, where there is one: a short name may be another agent's by now.
    agents = Agent.objects.for_display()
    if context.turn_id is None:
        return LoadTarget(session, agents.get(slug=context.agent))
    of_turn = {"is_unattended": F("turns__is_unattended"), "client_tools": F("turns__client_request__tools")}
    agent = agents.filter(turns=context.turn_id).annotate(**of_turn).get()
    columns = vars(agent)
    return LoadTarget(
        session, agent, is_unattended=columns["is_unattended"], brings_tools=bool(columns["client_tools"])
    )


def by_model(context: ToolContext) -> By:
    used_up = False
    if context.turn_id is not None:
        used_up = continuations_of(context.turn_id) >= settings.TOOLHUB_MAX_CONTINUATIONS
    member = Membership.objects.get(pk=context.membership_id)
    return By(member, LoadSource.MODEL, step_id=context.step_id, next_turn=used_up)


def category_result(result: LoadResult) -> dict[str, Any]:
    """JSON that states success or failure."""
    if not result.is_there:
        return {"success": False, "error": result.message, **result.more}
    return {"success": True, "loaded_category": result.name, "message": result.message, **result.more}


def _found_by_client(context: ToolContext, place: LoadTarget, query: str, max_results: int) -> list[Hit] | None:
    """Return what a client finds at its address, where a client made the turn's call; None in a conversation. One
    query, then those of `offered_to`."""
    asked = ClientRequest.objects.filter(turn=context.turn_id).first() if context.turn_id else None
    if asked is None or asked.call is None:
        return None
    offered = offered_to(context.membership_id, place.agent, str(asked.call["toolkit"]))
    return search_offered(offered.candidates, query, max_results)


def _toolkit(loadable: Loadable) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": loadable.bundle.name,
        "description": loadable.bundle.description,
        "tools": [each.spec.name for each in loadable.tools],
        "loaded": loadable.is_loaded,
        "sticky": loadable.bundle.is_initial,
    }
    if loadable.needs_set_up:
        entry["needs_set_up"] = loadable.needs_set_up
    return entry


def _categories(reading: LoadInputs) -> list[dict[str, Any]]:
    """The categories that this member may load, and whether they are loaded. One query, for those who may load any."""
    if not reading.permissions.loads:
        return []
    loaded = {key for each in reading.holdings.loads for key in each.bundle.category_ids}
    return [
        {"name": each.name, "description": each.description} | ({"loaded": True} if each.pk in loaded else {})
        for each in loadable_categories(reading.place.agent, reading.permissions.loads)
    ]


def _found(hit: Hit, agent: Agent, by: By) -> dict[str, Any]:
    """Describe a hit, with the way to use it: by waiting, where it is loaded already or was left out for this message;
    where the tools never change, by `call_tool`, which needs its parameters; else by loading what brings it."""
    spec, bundle = hit.candidate.spec, hit.candidate.bundle
    function = spec.definition["function"]
    entry = {"name": spec.name, "description": function["description"], "score": hit.score}
    if hit.how == How.LOADED:
        when, words = loading.takes_effect(agent, by)
        return entry | {"loaded": True, "takes_effect": when, "message": f"It is loaded, and {words}."}
    if hit.how == How.LEFT_OUT:
        return entry | {"comes_with": NEXT_STEP, "message": "Call it then, by its name."}
    if hit.how == How.CATEGORY:
        return entry | {"category": spec.category, "load_with": LOAD_CATEGORY}
    if agent.loading_mode != LoadingMode.CONSTANT and hit.how != How.CALL:
        return entry | {"toolkit": bundle.name if bundle else ""}
    entry |= {"parameters": function["parameters"], "call_with": CALL_TOOL}
    return entry | ({"instructions": spec.instructions} if spec.instructions else {})
