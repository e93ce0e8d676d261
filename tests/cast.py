"""Rows with honest defaults. The cast is always the same: Alice is admin of Acme, Bob a member of Acme, and Charlie,
admin of Globex, must see nothing of Acme."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone

from capabilities.catalogue.tools.writes import Definition, Origin, create_tool
from capabilities.common.registry_version import touch_registry
from capabilities.contract.loading import LOADING_TOOLS, META_CATEGORY, READ_RESULT
from capabilities.contract.wire import sha256_hex
from capabilities.models import (
    Agent,
    AgentTool,
    AgentToolkit,
    Category,
    LanguageModel,
    Provider,
    Role,
    RoleMembership,
    RoleMode,
    ServiceSetting,
    Tool,
    Toolkit,
    ToolkitCategory,
    ToolkitTool,
)
from capabilities.running.registry import registry
from sessions.access import own_session
from sessions.models import Approval, Budget, ChatSession, Step, Turn
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Access, Membership, Organisation, User
from toolhub.tenants.rows.scope import organisation_scope, system_scope

PASSWORD = "correct-horse-battery"


def make_organisation(slug: str, **fields: Any) -> Organisation:
    return Organisation.objects.create(slug=slug, name=fields.pop("name", slug.title()), **fields)


def make_member(organisation: Organisation, name: str, access: Access = Access.MEMBER) -> Membership:
    with system_scope():
        user, _ = User.objects.get_or_create(email=f"{name}@example.com", defaults={"first_name": name.title()})
        user.set_password(PASSWORD)
        user.save()
        return Membership.objects.create(organisation=organisation, user=user, access=access)


def make_category(organisation: Organisation, name: str = "utility", **fields: Any) -> Category:
    with organisation_scope(organisation):
        defaults = {"title": name.title(), "is_core": True} | fields
        return Category.objects.get_or_create(organisation=organisation, name=name, defaults=defaults)[0]


def make_tool(organisation: Organisation, name: str = "calculator", **fields: Any) -> Tool:
    """A tool named like a built-in one runs that; any other name is only good for selections."""
    category = fields.pop("category", None) or make_category(organisation)
    origin = fields.pop("origin", Origin())
    known = registry.tools.get(name)
    content = {
        "description": known.description if known else f"Does {name}.",
        "parameters": known.parameters if known else {"type": "object", "properties": {}},
        "effect": known.effect if known else "read",
        "on_crash": known.on_crash if known else "retry",
        "untrusted_output": known.untrusted if known else False,
        "in_untrusted": known.in_untrusted if known else "allow",
    } | fields
    with organisation_scope(organisation):
        return create_tool(category, Definition(name=name, **content), actor=None, origin=origin)


def hold_credential(organisation: Organisation, service: str) -> None:
    """The organisation has set the service up with a secret."""
    with organisation_scope(organisation):
        ServiceSetting.objects.update_or_create(
            organisation=organisation, service=service, defaults={"is_complete": True, "holds_secret": True}
        )


def make_role(organisation: Organisation, member: Membership, mode: RoleMode = RoleMode.ALL, slug: str = "all") -> Role:
    with organisation_scope(organisation):
        role, _ = Role.objects.get_or_create(organisation=organisation, slug=slug, name=slug.title(), mode=mode)
        RoleMembership.objects.create(organisation=organisation, role=role, membership=member)
        return role


def make_agent(organisation: Organisation, base_url: str = "", **fields: Any) -> Agent:
    slug = fields.pop("slug", "starter")
    with organisation_scope(organisation):
        provider, _ = Provider.objects.get_or_create(
            organisation=organisation, slug="scripted", defaults={"name": "Scripted", "base_url": base_url}
        )
        model, _ = LanguageModel.objects.get_or_create(organisation=organisation, provider=provider, name="scripted")
        return Agent.objects.create(
            organisation=organisation, slug=slug, **({"model": model, "name": slug.title()} | fields)
        )


def make_meta_tools(organisation: Organisation) -> None:
    """The tools that load others; an agent gets them where it has something to load."""
    category = make_category(organisation, META_CATEGORY)
    for name in sorted(LOADING_TOOLS):
        make_tool(organisation, name, category=category)


def make_reader(organisation: Organisation) -> Tool:
    """The tool that reads on in results; an agent gets it with any other tool."""
    return make_tool(organisation, READ_RESULT, category=make_category(organisation, META_CATEGORY))


def make_toolkit(
    organisation: Organisation,
    name: str,
    *tools: Tool,
    categories: tuple[Category, ...] = (),
    overrides: dict[str, dict[str, Any]] | None = None,
    **fields: Any,
) -> Toolkit:
    """`overrides`: what the toolkit says of a tool in place of its own version, by the tool's name."""
    with organisation_scope(organisation):
        toolkit = Toolkit.objects.create(organisation=organisation, name=name, **fields)
        for position, tool in enumerate(tools, start=1):
            said = (overrides or {}).get(tool.name, {})
            ToolkitTool.objects.create(organisation=organisation, toolkit=toolkit, tool=tool, position=position, **said)
        for category in categories:
            ToolkitCategory.objects.create(organisation=organisation, toolkit=toolkit, category=category)
        return toolkit


def allow_toolkit(agent: Agent, toolkit: Toolkit, initial: bool = False) -> AgentToolkit:
    """The agent may load it; behind those that it may load already."""
    with organisation_scope(agent.organisation_id):
        position = AgentToolkit.objects.filter(agent=agent).count() + 1
        return AgentToolkit.objects.create(
            organisation_id=agent.organisation_id, agent=agent, toolkit=toolkit, is_initial=initial, position=position
        )


def give_tool(agent: Agent, tool: Tool, **fields: Any) -> AgentTool:
    """A tool of the agent's own."""
    with organisation_scope(agent.organisation_id):
        return AgentTool.objects.create(organisation_id=agent.organisation_id, agent=agent, tool=tool, **fields)


def make_session(member: Membership, agent: Agent | None = None, **fields: Any) -> ChatSession:
    with organisation_scope(member.organisation):
        agent = agent or Agent.objects.first() or make_agent(member.organisation)
        return ChatSession.objects.create(organisation=member.organisation, membership=member, agent=agent, **fields)


def make_turn(session: ChatSession, message: str = "hello", **fields: Any) -> Turn:
    """A turn as it stands on record, without running it."""
    with organisation_scope(session.organisation):
        seq = session.turns.count() + 1
        return Turn.objects.create(
            organisation=session.organisation,
            session=session,
            membership=session.membership,
            message=message,
            **({"seq": seq, "agent": session.agent, "deadline_at": timezone.now() + timedelta(minutes=10)} | fields),
        )


def make_approval(step: Step, **fields: Any) -> Approval:
    """What somebody is asked of a pending call, for a week."""
    with organisation_scope(step.organisation_id):
        turn = Turn.objects.select_related("session__organisation", "membership").get(pk=step.turn_id)
        name = step.tool_name or "calculator"
        tool = Tool.objects.filter(name=name).first() or make_tool(turn.organisation, name)
        plain: dict[str, Any] = {
            "turn": turn,
            "session": own_session(turn.session),
            "requester": turn.membership,
            "tool": tool,
            "tool_version": tool.current_version,
            "arguments": step.arguments,
            "digest": sha256_hex(step.arguments),
            "source": "rule test",
            "for_people": "The rule test asks.",
            "expires_at": timezone.now() + timedelta(days=7),
        }
        return Approval.objects.create(organisation_id=step.organisation_id, step=step, **(plain | fields))


def make_budget(organisation: Organisation, name: str = "Acme a day", **fields: Any) -> Budget:
    """A hard one of 100,000 tokens a day for the whole organisation, as it is from the next registry version on."""
    with organisation_scope(organisation):
        defaults = {"scope": "organisation", "measure": "tokens", "window": "day", "limit": 100_000} | fields
        budget = Budget.objects.create(organisation=organisation, name=name, **defaults)
        touch_registry(organisation.pk)
        return budget


def make_token(member: Membership, **fields: Any) -> str:
    """A usable token's secret."""
    with organisation_scope(member.organisation):
        return issue_token(member, "Test", actor=None, **fields)[1]
