"""The page that explains why each tool is, or is not, in what an agent sends for a member."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.http import Http404, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_GET, require_POST

from capabilities.access.roles.queries import roles_shown
from capabilities.catalogue.tools.recipients.writes import NO_AGENT
from capabilities.common.pages import show_refusal, status_of
from capabilities.common.refused import ChangeRefused
from capabilities.models import Agent, AgentScope, ClientApprovals, Role, RoutingMode
from capabilities.running.registry import registry
from capabilities.running.services.writes import set_up_title
from sessions.access import kept_sessions_of
from sessions.insight.explain.fixes import fix, may_fix
from sessions.insight.explain.reasons import POLICIES, Asked, Cell
from sessions.insight.explain.remedies.ways import Change
from sessions.insight.explain.why import MAX_MESSAGE, Explained, Explanation, Subject, explain, subject_of
from sessions.models import ChatSession
from toolhub.tenants.access import MemberRequest, member_or_404
from toolhub.tenants.models import Access, Membership, Right
from toolhub.tenants.pages import signed_in
from toolhub.tenants.rows.cursors import MAX_PLACE

#: Sessions of the member that the page offers, the last used first.
SESSIONS_OFFERED = 20
#: Titles of the stages.
TITLES = {
    "loaded": "Loaded",
    "enabled": "Enabled",
    "set-up": "Set-up",
    "scope": "Scope",
    "delegation": "Delegation",
    "grants": "Grants",
    "role": "Role",
    "policy": "Policy",
    "provider_policy": "Provider’s policy",
    "approval": "Approval",
    "refused": "Provider",
    "size": "Size",
    "router": "Message",
    "limit": "Limit",
}
#: Parameters of the address that stay after a change; the last two are the place in the list.
KEPT = ("member", "agent", "session", "message", "client", "q", "category", "state", "after", "before")
STATE_CHOICES = [
    ("", "All tools"),
    ("sent", "Sent"),
    ("loadable", "Can be loaded"),
    ("stopped", "Blocked"),
    ("not_offered", "Not offered"),
]


class ExplainForm(forms.Form):
    """Address of the page: the member and agent that are asked about, and the tools."""

    member = forms.EmailField(required=False, max_length=254)
    agent = forms.CharField(required=False, max_length=63)
    session = forms.UUIDField(required=False, error_messages={"invalid": "There is no such session."})
    message = forms.CharField(required=False, max_length=MAX_MESSAGE)
    client = forms.BooleanField(required=False)
    q = forms.CharField(required=False, max_length=100)
    category = forms.CharField(required=False, max_length=64)
    state = forms.ChoiceField(required=False, choices=STATE_CHOICES)
    after = forms.CharField(required=False, max_length=MAX_PLACE)
    before = forms.CharField(required=False, max_length=MAX_PLACE)

    def asked(self) -> Asked:
        names = ("q", "category", "state", "after", "before", "message", "client")
        return Asked(**{name: self.cleaned_data[name] for name in names})

    @property
    def kept(self) -> dict[str, str]:
        """Parameters that a link to another page of the list keeps: everything but the place."""
        values = {name: str(self.data.get(name, "")) for name in KEPT[:-2]}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True)
class ShownChange:
    """A change with the page where the reader may make it (or ask for it), and whether a button does it here."""

    change: Change
    url: str
    is_button: bool


@dataclass(frozen=True)
class ExplainedRow:
    """One tool as its row shows it: the stages that stop it and the others, and the changes with a page, where the
    reader may go."""

    explained: Explained
    #: Each with the title of its stage.
    stops: Sequence[tuple[str, Cell]]
    passed: Sequence[tuple[str, Cell]]
    changes: Sequence[ShownChange]
    #: Places to change, for a tool that several things stop: what to do about each, and the page for it.
    places: Sequence[tuple[str, str]]


@require_GET
@signed_in
def explain_page(request: MemberRequest, org: str) -> HttpResponse:
    """Why each tool is sent or not, for oneself; with the right `roles` for any member."""
    reader = member_or_404(request)
    form = ExplainForm(request.GET, auto_id="explain-%s")
    agents = list(_agents(reader))
    subject = _subject(form, reader, agents) if form.is_valid() else None
    found = explain(subject, form.asked()) if subject is not None else None
    hidden = _hidden(subject, found)
    context: dict[str, Any] = {
        "form": form,
        "agents": agents,
        "subject": subject,
        "found": found,
        "lines": _lines(found, reader, subject, hidden),
        "no_agent": NO_AGENT,
        "sees_all": reader.has_right(Right.ROLES),
        "states": STATE_CHOICES,
        "query": urlencode(form.kept),
        "roles_to_give": _roles_to_give(reader, found),
        "kept": [(name, form.data[name]) for name in KEPT if form.data.get(name)],
        "is_filtered": any(form.data.get(name) for name in ("q", "category", "state")),
    }
    if request.htmx:
        return render(request, "sessions/insight/explain/_explain_tools.html", context, status=status_of(form))
    context["sessions"] = _sessions(subject)
    return render(request, "sessions/insight/explain/explain.html", context, status=status_of(form))


@require_POST
@signed_in
def explain_fix(request: MemberRequest, org: str) -> HttpResponse:
    """Make one of the changes that a tool's line offers, and go back to where it was offered."""
    reader = member_or_404(request, at_least=Access.MEMBER)
    form = ExplainForm(request.POST)
    subject = _subject(form, reader, list(_agents(reader))) if form.is_valid() else None
    if subject is None:
        raise Http404("There is no such member, agent or session.")
    wanted = {name: request.POST.get(name, "")[:200].replace("\x00", "") for name in ("tool", "code", "target")}
    try:
        messages.success(request, fix(subject, **wanted, actor=reader))
    except ChangeRefused as error:
        messages.error(request, str(error))
    place = {name: form.cleaned_data[name] for name in ("after", "before") if form.cleaned_data[name]}
    return redirect(f"{reverse('explain', args=[org])}?{urlencode(form.kept | place)}")


def _roles_to_give(reader: Membership, found: Explanation | None) -> Sequence[Role]:
    """Return the roles that the reader may give a member who may use nothing; none for anybody else. One query, where
    there is such a member."""
    if found is None or not found.allows_nothing or not reader.has_right(Right.ROLES):
        return []
    return roles_shown()


def _agents(reader: Membership) -> Any:
    rows = Agent.objects.seen_by(reader).select_related("model__provider").defer("model__provider__api_key", "prompt")
    return rows.order_by("-is_enabled", "pk")


def _subject(form: ExplainForm, reader: Membership, agents: Sequence[Agent]) -> Subject | None:
    """Return the subject that is asked about; None, with the reason in the form, for what is not there.
    PermissionDenied goes on."""
    wanted = form.cleaned_data
    slug, session = wanted["agent"], wanted["session"]
    by_slug = {agent.slug: agent for agent in agents}
    if not slug and session is None:
        if not agents:
            return None
        slug = agents[0].slug
    try:
        return subject_of(reader, member=wanted["member"] or None, agent=by_slug.get(slug, slug), session=session)
    except ChangeRefused as error:
        show_refusal(form, error)
        return None


def _sessions(subject: Subject | None) -> list[ChatSession]:
    """The member's last ones, with the one that was asked for among them."""
    if subject is None:
        return []
    rows = kept_sessions_of(subject.member).select_related("agent")
    found = list(
        rows.only("organisation_id", "title", "agent__organisation_id", "agent__name").order_by("-active_at")[
            :SESSIONS_OFFERED
        ]
    )
    if subject.session is not None and subject.session not in found:
        found.insert(0, subject.session)
    return found


def _hidden(subject: Subject | None, found: Explanation | None) -> set[str]:
    """Stages that can say nothing here: a policy that is not there has no reason for any tool, nor has routing without
    a message, or who answers where nothing is left out."""
    if subject is None:
        return set()
    cells = [cell for each in found.tools for cell in each.reasons.cells] if found is not None else []
    hidden = {*POLICIES, "router"} - {cell.stage for cell in cells if cell.reason}
    if subject.agent.scope != AgentScope.MEMBER:
        hidden.add("scope")
    if not subject.session or subject.session.delegated_tools is None:
        hidden.add("delegation")
    return hidden


def _lines(
    found: Explanation | None, reader: Membership, subject: Subject | None, hidden: Collection[str]
) -> list[ExplainedRow]:
    if found is None or subject is None:
        return []
    return [
        ExplainedRow(
            each,
            [(TITLES[cell.stage], cell) for cell in each.reasons.stops],
            [(TITLES[cell.stage], cell) for cell in _passed(each, hidden)],
            _shown(each, reader, subject),
            list(_places(each, reader, subject)),
        )
        for each in found.tools
    ]


def _passed(each: Explained, hidden: Collection[str]) -> list[Cell]:
    """The stages that do not stop the tool, without those that can say nothing here."""
    return [cell for cell in each.reasons.cells if not cell.stops and cell.stage not in hidden]


def _places(each: Explained, reader: Membership, subject: Subject) -> Iterator[tuple[str, str]]:
    """Yield words and page for each of several things that stop a tool, where the reader may change it. Whether that is
    enough was not tried."""
    spec, stops = each.reasons.spec, each.reasons.stops
    if each.changes or len(stops) < 2:
        return
    service = registry.services.get(spec.service)
    agent, member = subject.agent, subject.member
    grant = {"tool": spec.name, "member": member.user.email}
    at_agent: tuple[Right, str, tuple[str | int | UUID, ...], dict[str, str]]
    at_agent = (Right.AGENTS, "agent_update", (agent.slug,), {})
    pages: dict[str, tuple[str, Right, str, tuple[str | int | UUID, ...], dict[str, str]]] = {
        "loaded": (f"add it to {agent}", Right.AGENTS, "agent_update", (agent.slug,), {}),
        "enabled": _to_enable(each),
        "scope": (f"change the credentials of {agent}", Right.AGENTS, "agent_update", (agent.slug,), {}),
        "grants": ("revoke the grant", Right.ROLES, "member_tools", (member.public_id,), {"q": spec.name}),
        "role": ("give a grant", Right.ROLES, "grant_create", (), grant),
        "policy": ("let it through in the organisation’s policy", Right.POLICIES, "policy_update", (), {}),
        "provider_policy": (
            f"let it through in the policy of provider {agent.model.provider}",
            Right.POLICIES,
            "policy_provider_update",
            (agent.model.provider.slug,),
            {},
        ),
    }
    if subject.agent.client_approvals == ClientApprovals.HIDE:
        pages["approval"] = (f"have clients of {agent} told where to answer", *at_agent)
    if subject.agent.routing_mode != RoutingMode.OFF:
        pages["router"] = (f"pin it for {agent}", Right.AGENTS, "agent_update", (agent.slug,), {})
    if service is not None and service.is_available:
        set_up = f"set up {set_up_title(spec.service)}"
        pages["set-up"] = (set_up, Right.CATALOGUE, "service_update", (spec.service,), {})
    for stop in stops:
        if stop.stage not in pages:
            continue
        text, right, view, args, query = pages[stop.stage]
        if reader.reach(right).covers(spec.category):
            yield text, reverse(view, args=[reader.organisation.slug, *args], query=query or None)


def _to_enable(each: Explained) -> tuple[str, Right, str, tuple[str | int, ...], dict[str, str]]:
    spec, waiting = each.reasons.spec, each.reasons.listed.waiting
    if not spec.is_enabled:
        return "switch it on", Right.CATALOGUE, "tool_detail", (spec.name,), {}
    if waiting is not None:
        decide = f"decide on version {waiting.number}"
        return decide, Right.APPROVE_CODE, "tool_version", (spec.name, waiting.number), {}
    return "decide about its versions", Right.APPROVE_CODE, "tool_versions", (spec.name,), {}


def _shown(each: Explained, reader: Membership, subject: Subject) -> list[ShownChange]:
    category = each.reasons.spec.category
    return [
        ShownChange(change, _page_of(change, each, reader, category), may_fix(change, subject, category, reader))
        for change in each.changes
    ]


def _page_of(change: Change, each: Explained, reader: Membership, category: str) -> str:
    """Return the address where the reader may make the change, or ask for it; empty where neither."""
    org = reader.organisation.slug
    if change.right is None or reader.reach(change.right).covers(category):
        return reverse(change.view, args=[org, *change.args], query=change.query or None)
    if change.code == "give_grant":
        return reverse("tool_detail", args=[org, each.reasons.spec.name])
    return ""
