"""The pages that change what an agent offers, or what is in a toolkit. Whom that changes is shown before it is saved.

A change of words is saved at once. Any other is saved with the stamp of what was shown: of the stored state, and of
what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.views.decorators.http import require_http_methods

from capabilities.agents.forms import AgentForm
from capabilities.agents.queries import agent_or_404
from capabilities.agents.views import agent_page, agent_saved
from capabilities.agents.writes import AgentContent, agent_stamp, update_agent
from capabilities.common.pages import show_refusal
from capabilities.common.refused import ChangedMeanwhile, ChangeRefused
from capabilities.contract.wire import canonical_json, sha256_hex
from capabilities.toolkits.forms import ToolkitForm
from capabilities.toolkits.queries import toolkit_or_404
from capabilities.toolkits.views import toolkit_page, toolkit_saved
from capabilities.toolkits.writes import ToolkitContent, toolkit_stamp, update_toolkit
from sessions.previews.offers import OfferImpact, impact_of_agent, impact_of_toolkit
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Right
from toolhub.tenants.pages import signed_in

MOVED = "It was changed in the meantime: nothing is saved yet. This is what your changes would do now."


@dataclass(frozen=True)
class Asked:
    """What a POST asks for: to be shown, or to be saved as it was shown."""

    #: Of what is stored, and of what was posted.
    state: str
    told: str
    #: The same two of what was shown last, if anything was.
    shown: tuple[str, str]
    wants_preview: bool

    @property
    def stamp(self) -> str:
        return f"{self.state}.{self.told}"

    @property
    def has_moved(self) -> bool:
        """Whether what is stored is not what something was shown for."""
        return bool(self.shown[0]) and self.shown[0] != self.state

    @property
    def is_shown(self) -> bool:
        return self.shown == (self.state, self.told) and not self.wants_preview

    def may_be_saved(self, impact: OfferImpact) -> bool:
        return not (impact.is_felt or self.has_moved or self.wants_preview)


def _asked(request: MemberRequest, state: str, told: Any) -> Asked:
    shown, _, content = request.POST.get("stamp", "").partition(".")
    return Asked(state, sha256_hex(canonical_json(told)), (shown, content), "preview" in request.POST)


@require_http_methods(["GET", "POST"])
@signed_in
def agent_update(request: MemberRequest, org: str, slug: str) -> HttpResponse:
    """A first POST that changes what the agent offers shows what that means; one with the stamp of that saves it."""
    member = member_or_404(request, right=Right.AGENTS)
    agent = agent_or_404(slug)
    form = AgentForm(request.POST or None, agent=agent)
    if "find" in request.POST or not form.is_valid():
        return agent_page(request, form, agent, {})
    content = form.content()
    asked = _asked(request, agent_stamp(agent), _offered(content))
    moved = asked.has_moved
    try:
        impact = None if asked.is_shown else impact_of_agent(agent, content, actor=member)
        if impact is None or asked.may_be_saved(impact):
            saved = update_agent(agent_or_404(slug), content, actor=member, stamp=asked.state)
            return agent_saved(request, org, saved)
    except ChangeRefused as error:
        show_refusal(form, error)
        return agent_page(request, form, agent, {})
    except ChangedMeanwhile:
        moved = True
        asked = _asked(request, agent_stamp(agent), _offered(content))
        impact = impact_of_agent(agent, content, actor=member)
    return agent_page(request, form, agent, _shown(asked, impact, moved), status=_status(request, moved))


@require_http_methods(["GET", "POST"])
@signed_in
def toolkit_update(request: MemberRequest, org: str, name: str) -> HttpResponse:
    """The same for what is in a toolkit. One that no agent may load is saved at once: nobody feels it."""
    member = member_or_404(request, right=Right.TOOLKITS)
    toolkit = toolkit_or_404(name)
    form = ToolkitForm(request.POST if request.method == "POST" else None, toolkit=toolkit)
    if "find" in request.POST or not form.is_valid():
        return toolkit_page(request, form, toolkit, {})
    content = form.content()
    asked = _asked(request, toolkit_stamp(toolkit), _held(content))
    moved = asked.has_moved
    try:
        impact = None if asked.is_shown else impact_of_toolkit(toolkit, content, actor=member)
        if impact is None or asked.may_be_saved(impact):
            saved = update_toolkit(toolkit_or_404(name), content, actor=member, stamp=asked.state)
            return toolkit_saved(request, org, saved)
    except ChangeRefused as error:
        show_refusal(form, error)
        return toolkit_page(request, form, toolkit, {})
    except ChangedMeanwhile:
        moved = True
        asked = _asked(request, toolkit_stamp(toolkit), _held(content))
        impact = impact_of_toolkit(toolkit, content, actor=member)
    return toolkit_page(request, form, toolkit, _shown(asked, impact, moved), status=_status(request, moved))


def _offered(content: AgentContent) -> list[Any]:
    """What an agent's content says beside words."""
    modes = [content.starts_with_core, content.scope, content.loading_mode]
    lists = [content.tools, content.allowed_toolkits]
    return [*modes, *lists, sorted(content.deferred_tools or ()), sorted(content.initial_toolkits or ())]


def _held(content: ToolkitContent) -> list[Any]:
    """What a toolkit's content says beside words."""
    lines = [[line.tool, line.timeout, line.max_result_chars] for line in content.tools]
    return [lines, sorted(content.categories)]


def _shown(asked: Asked, impact: OfferImpact, moved: bool) -> dict[str, Any]:
    return {"impact": impact, "stamp": asked.stamp, "moved": MOVED if moved else ""}


def _status(request: MemberRequest, moved: bool) -> int:
    """htmx shows no page that comes with a 409."""
    return 409 if moved and not request.htmx else 200
