"""Every write of configuration with a way to call it by the dice, for the tests of who may make it."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar

from django.db.models import QuerySet
from django.utils import timezone

from capabilities.access.approval_rules import writes as approval_rules
from capabilities.access.grants import writes as grants
from capabilities.access.policies import writes as policies
from capabilities.access.requests import writes as grant_requests
from capabilities.access.roles import writes as roles
from capabilities.agents.agents import giving
from capabilities.agents.agents import writes as agents
from capabilities.agents.hooks import writes as hooks
from capabilities.agents.runtime_config import writes as runtime_config
from capabilities.agents.sharing import imported_toolkits
from capabilities.agents.sharing.publications import writes as publications
from capabilities.agents.toolkits import writes as toolkits
from capabilities.catalogue.categories import writes as categories
from capabilities.catalogue.http_tools import writes as http_tools
from capabilities.catalogue.imports.writes import change as import_changes
from capabilities.catalogue.imports.writes import decide as imports
from capabilities.catalogue.imports.writes.start import start_import
from capabilities.catalogue.python_tools import writes as python_tools
from capabilities.catalogue.python_tools.helper_modules import checks as module_checks
from capabilities.catalogue.python_tools.helper_modules import writes as modules
from capabilities.catalogue.servers import writes as servers
from capabilities.catalogue.tools import writes as catalogue
from capabilities.catalogue.tools.bulk import writes as bulk
from capabilities.catalogue.tools.bulk.undo import undo_change
from capabilities.catalogue.tools.recipients.writes import Recipients
from capabilities.catalogue.versions import writes as versions
from capabilities.language_models.prices import writes as prices
from capabilities.language_models.providers import environment as environment_provider
from capabilities.language_models.providers import learning, listings, refused_tools
from capabilities.language_models.providers import writes as providers
from capabilities.models import (
    Agent,
    ApprovalRule,
    AskWhen,
    Category,
    ConnectionTest,
    CredentialScope,
    Effect,
    Grant,
    GrantRequest,
    HelperModule,
    HelperVersion,
    Hook,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    LanguageModel,
    McpServer,
    ModelPrice,
    OAuthSignIn,
    PolicyProfile,
    Provider,
    Publication,
    RequestStatus,
    Role,
    RoleMode,
    StoredCredential,
    StoredSecret,
    Tool,
    ToolImport,
    ToolKind,
    Toolkit,
    ToolRefusal,
    ToolTestCase,
    ToolVersion,
    VersionStatus,
)
from capabilities.running.credentials import writes as credentials
from capabilities.running.credentials.oauth import sign_in
from capabilities.running.credentials.oauth import tokens as oauth_tokens
from capabilities.running.registry import registry
from capabilities.running.services import writes as services
from sessions.budgets import writes as budgets
from sessions.models import Budget, BudgetPeriod
from toolhub.tenants import access
from toolhub.tenants.identity import resets
from toolhub.tenants.models import Access, ApiToken, AuditEntry, Invitation, Membership, Right, Scope
from toolhub.tenants.organisation import writes as organisation
from toolhub.tenants.people import invitations
from toolhub.tenants.people import writes as members
from toolhub.tenants.tokens import writes as tokens

T = TypeVar("T")

#: Where writes of configuration are.
ROOMS = ("capabilities", "toolhub/tenants", "sessions/budgets")
#: Public functions that look like a write of configuration to `found_writes`, and why the table does not have them.
NOT_IN_TABLE = {
    "capabilities.catalogue.tools.writes.write_versions": "called by the writes of tools, in their transaction",
    "capabilities.catalogue.python_tools.writes.save_checked": "calls save_python_version",
    "capabilities.catalogue.servers.writes.read_tools": "start_import, of a server",
    "capabilities.catalogue.http_tools.writes.category_for": "a check",
    "capabilities.catalogue.imports.writes.decide.require_for": "a check",
    "capabilities.agents.sharing.exports.export_toolkit": "changes nothing: on record that a toolkit left the house",
    "capabilities.agents.sharing.agents_file.apply_file": "calls the writes of toolkits and agents",
    "capabilities.agents.sharing.imported_toolkits.after_accept": "called by accept_imported, in its transaction",
    "capabilities.running.push.writes.add_browser": "one's own browsers",
    "capabilities.running.push.writes.remove_browser": "one's own browsers",
    "capabilities.catalogue.tools.install.install_builtin": "the service's own, at set-up",
    "capabilities.catalogue.versions.rules.status_of_new": "a rule",
    "capabilities.access.grants.writes.lapse_grant": "the service's own: what it puts on record has happened",
    "sessions.budgets.writes.set_time_zone": "calls set_spending_rules",
    "capabilities.starter.open_to_everyday": "the service's own, when the assistant is switched on",
    "capabilities.starter.create_organisation": "the service's own, at set-up",
    "capabilities.starter.use_provider_of_environment": "the service's own, at set-up",
    "capabilities.language_models.providers.learning.learn": "the service's own: what a provider's refusal taught",
    "capabilities.language_models.providers.listings.note_listed": "the service's own: what a provider lists",
    "capabilities.language_models.providers.environment.move_agent": "called by back_to_offline_model, and the service",
    "capabilities.access.roles.invited.give_invited_roles": (
        "called when an invitation is accepted: assign_role gives them"
    ),
    "capabilities.access.roles.invited.set_invited_roles": "called by invite",
    "capabilities.agents.hooks.writes.count_failure": "the service's own: what is counted of a turn",
    "capabilities.common.rights.check_rank": "a check",
    "capabilities.common.rights.require": "a check",
    "capabilities.catalogue.servers.refresh.note_listing": "the service's own: what a server says of its tools",
    "capabilities.access.policies.writes.install_profiles": "the service's own, at set-up",
    "capabilities.access.roles.queries.role_members": "a read",
    "capabilities.access.roles.writes.require_for_rules": "a check",
    "capabilities.access.roles_above.locked_roles": "a read",
    "capabilities.access.roles_above.read_roles_above": "a read",
    "capabilities.running.credentials.oauth.sign_in.begin_sign_in": "asks an authorization server; gives nothing",
    "capabilities.running.credentials.oauth.sign_in.end_sign_in": "calls keep_tokens",
    "capabilities.running.credentials.writes.remove_secret": "calls disconnect_account and clear_secret",
    "capabilities.running.credentials.writes.check_may_disconnect": "a check",
    "capabilities.running.credentials.writes.forget_accounts": "called where a membership ends",
    "capabilities.running.credentials.writes.require_manager": "a check",
    "toolhub.tenants.access.issue_token": "called by issue_own_token, and at set-up",
    "toolhub.tenants.identity.account.hand_back": "the operator's of the installation, at the command line",
    "toolhub.tenants.identity.account.rename_user": "one's own name",
    "toolhub.tenants.audit.writes.record": "the record itself",
    "toolhub.tenants.authority.why_beyond": "a check",
    "toolhub.tenants.authority.higher_than": "a check",
    "toolhub.tenants.authority.why_not_of": "a check",
    "toolhub.tenants.authority.why_not_to": "a check",
    "toolhub.tenants.audit.denials.record_denial": "puts on record what was refused",
    "toolhub.tenants.people.writes.end_made_links": "called where a membership ends, and by hand_back",
    "toolhub.tenants.people.writes.may_manage": "a check",
    "toolhub.tenants.people.writes.why_not": "a check",
    "toolhub.tenants.people.writes.accesses_to_give": "a check",
    "toolhub.tenants.identity.resets.why_no_reset": "a check",
    "toolhub.tenants.identity.resets.reset_password": "the member's own, with a link that issue_reset_link made",
}
#: Those of the table that ask for nobody's powers: they are about the member who makes them, and give none.
NOT_GUARDED = {
    "capabilities.catalogue.imports.writes.start.start_import": "asks for a reading, which changes no tool",
    "sessions.budgets.writes.switch_budget": "calls update_budget",
    "capabilities.access.requests.writes.ask_for_grant": "a request gives nothing",
    "capabilities.access.requests.writes.withdraw_request": "one's own request",
    "toolhub.tenants.access.revoke_token": "it only takes away; rank is checked",
    "toolhub.tenants.people.writes.set_access": "calls change_member",
    "toolhub.tenants.people.writes.give_right": "calls _change_rights",
    "toolhub.tenants.people.writes.take_right": "calls _change_rights",
}


def found_writes() -> set[str]:
    """Public functions of the rooms of configuration that record a change, are guarded, or have an actor; not views,
    and not what a room above provides, which stands there."""
    found = set()
    for room in ROOMS:
        for path in sorted(Path(room).rglob("*.py")):
            if {"migrations", "views", "api"} & set(path.parts) or path.name in ("views.py", "routes.py", "pages.py"):
                continue
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and _looks_like_a_write(node):
                    found.add(".".join((*path.with_suffix("").parts, node.name)))
    return found


def _looks_like_a_write(node: ast.FunctionDef) -> bool:
    calls = {each.func.id for each in ast.walk(node) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    guards = [ast.unparse(each) for each in node.decorator_list]
    if "Provided" in guards:
        return False
    arguments = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
    return "record" in calls or "actor" in arguments or any("_write" in each for each in guards)


@dataclass(frozen=True)
class Dice:
    """Draws rows and contents. `actor` is drawn as often as all others together, where a member is wanted."""

    random: random.Random
    actor: Membership

    def one(self, rows: Iterable[T]) -> T:
        return self.random.choice(list(rows))

    def some(self, rows: Iterable[T]) -> list[T]:
        rows = list(rows)
        return self.random.sample(rows, self.random.randint(0, min(3, len(rows))))

    def row(self, model: Any) -> Any:
        return self.one(model.objects.order_by("pk"))

    def member(self) -> Membership:
        if self.random.random() < 0.5:
            return Membership.objects.select_related("user", "organisation").get(pk=self.actor.pk)
        found: Membership = self.one(Membership.objects.select_related("user").filter(ended_at=None).order_by("pk"))
        return found

    def name(self) -> str:
        return f"n{self.random.randrange(10**9)}"

    def yes(self) -> bool:
        return self.random.random() < 0.5

    def thing(self) -> dict[str, str]:
        """A tool or a category, by name."""
        return {"tool": self.row(Tool).name} if self.yes() else {"category": self.row(Category).name}

    def rules(self) -> tuple[roles.Rule, ...]:
        drawn = [roles.Rule(self.one(Effect.values), **self.thing()) for _ in range(self.random.randrange(4))]
        return tuple({(each.category, each.tool): each for each in drawn}.values())

    def role_content(self) -> roles.RoleContent:
        return roles.RoleContent(self.name(), "R", mode=self.one(RoleMode.values), rules=self.rules())

    def end(self) -> Any:
        return self.one([None, timezone.now() + timedelta(minutes=1), timezone.now() + timedelta(days=9)])

    def definition(self, name: str) -> catalogue.Definition:
        """What a tool of kind HTTP can run."""
        request = {"method": "GET", "url": "https://api.example.org/"}
        return catalogue.Definition(name, self.name(), {"type": "object", "properties": {}}, implementation=request)

    def outside_tool(self) -> Tool:
        """One of kind HTTP that is kept back."""
        name = self.name()
        catalogue.create_tool(
            self.row(Category), self.definition(name), actor=None, origin=catalogue.Origin(ToolKind.HTTP)
        )
        Tool.objects.filter(name=name).update(quarantine="it changed")
        return Tool.objects.get(name=name)

    def test(self) -> ToolTestCase:
        tool = self.row(Tool)
        return ToolTestCase.objects.create(organisation_id=tool.organisation_id, tool=tool, name=self.name())

    def module(self, status: VersionStatus) -> HelperVersion:
        """The only version of a new module."""
        own = {"organisation_id": self.actor.organisation_id}
        module = HelperModule.objects.create(**own, name=self.name())
        version: HelperVersion = HelperVersion.objects.create(
            **own, module=module, number=1, code=self.name(), sha256="", status=status
        )
        if status == VersionStatus.APPROVED:
            HelperModule.objects.filter(pk=module.pk).update(current_version=version)
        return version

    def checked_module(self) -> module_checks.CheckedModule:
        return module_checks.CheckedModule(self.name(), {"monty": ()})

    def version(self) -> ToolVersion:
        """One that waits, of a tool that is there."""
        tool = self.row(Tool)
        (version,) = catalogue.write_versions(
            [(tool, self.definition(tool.name))], actor=None, status=VersionStatus.PENDING
        )
        return version

    def dismissed(self) -> QuerySet[ImportedTool]:
        """Definitions of one import that somebody dismissed."""
        rows = imports.import_rows(self.tool_import())
        rows.update(status=ImportedStatus.DISMISSED)
        return rows

    def tool_import(self) -> ToolImport:
        """One that was read: two definitions wait for a decision."""
        own = {"organisation_id": self.actor.organisation_id}
        base = "https://api.example.org"
        found = ToolImport.objects.create(
            **own,
            source=ImportSource.OPENAPI,
            title=self.name(),
            status=ImportStatus.REVIEW,
            base_url=base,
            deadline_at=timezone.now(),
        )
        request = {"method": "GET", "url": "/a", "arguments": {}}
        ImportedTool.objects.bulk_create(
            ImportedTool(
                **own,
                tool_import=found,
                position=position,
                original_name=str(position),
                name=self.name(),
                description="d",
                parameters={"type": "object", "properties": {}},
                implementation=request,
                effect="read",
            )
            for position in range(2)
        )
        return found

    def toolkit_import(self) -> ToolImport:
        """One of a file whose toolkit names a tool that is here."""
        tool = self.row(Tool)
        line: dict[str, Any] = {"tool": "a", "timeout": None, "max_result_chars": None, "knobs": {}}
        found = ToolImport.objects.create(
            organisation_id=self.actor.organisation_id,
            source=ImportSource.TOOLKIT,
            title=self.name(),
            status=ImportStatus.REVIEW,
            content={"toolkit": {"name": self.name(), "description": "", "tools": [line]}},
            deadline_at=timezone.now(),
        )
        ImportedTool.objects.create(
            organisation_id=self.actor.organisation_id,
            tool_import=found,
            position=0,
            original_name="a",
            name=tool.name,
            tool=tool,
            status="unchanged",
        )
        return found

    def publication(self) -> Publication:
        """One of the actor's organisation."""
        return Publication.objects.create(
            publisher_id=self.actor.organisation_id,
            number=1,
            audience="installation",
            publisher_name="P",
            toolkit_name=self.name(),
            document="{}",
            sha256="0" * 64,
        )

    def category_content(self) -> categories.CategoryContent:
        return categories.CategoryContent(self.name(), is_core=self.yes())

    def agent_content(self) -> agents.AgentContent:
        own = tuple(tool.name for tool in self.some_tools())
        return agents.AgentContent(self.name(), "A", self.row(LanguageModel), tools=own, starts_with_core=self.yes())

    def runtime_layer(self) -> runtime_config.LayerOf:
        return self.one(
            [
                runtime_config.ORGANISATION,
                runtime_config.LayerOf(provider=self.row(Provider)),
                runtime_config.LayerOf(agent=self.row(Agent)),
            ]
        )

    def credential_content(self) -> credentials.CredentialContent:
        origins = [f"https://{self.name()}.example.org"]
        return credentials.CredentialContent("C", scope=self.one(CredentialScope.values), origins=origins)

    def credential(self, **fields: Any) -> StoredCredential:
        """A new one that members connect own accounts to, unless these fields say otherwise."""
        own = {"scope": CredentialScope.MEMBER, "kind": "bearer", "origins": ["https://api.example.org"]}
        made: StoredCredential = StoredCredential.objects.create(
            organisation_id=self.actor.organisation_id, name=self.name(), title="C", **(own | fields)
        )
        return made

    def secret(self) -> StoredSecret:
        own = {"organisation_id": self.actor.organisation_id, "values_json": "{}"}
        made: StoredSecret = StoredSecret.objects.create(credential=self.credential(), membership=self.member(), **own)
        return made

    def hook_content(self) -> hooks.HookContent:
        actions = [("ask", {"message": "m"}), ("append_note", {"text": "t"}), ("set_model", {"model": "scripted"})]
        action, settings = self.one(actions)
        agents = [self.row(Agent).slug] if self.yes() else []
        entry = {"name": self.name(), "action": action, "settings": settings, "when": {"agents": agents}}
        return hooks.HookContent(entry, is_enabled=self.yes())

    def budget_content(self) -> budgets.BudgetContent:
        aims = [
            ("organisation", ""),
            ("role", self.row(Role).slug),
            ("member", str(self.member().public_id)),
            ("agent", self.row(Agent).slug),
        ]
        scope, target = self.one(aims)
        return budgets.BudgetContent(self.name(), 1 + self.random.randrange(10**6), scope, target, is_hard=self.yes())

    def budget(self) -> Budget:
        """For good, of the whole organisation."""
        found = {"scope": "organisation", "limit": 1_000, "window": "total"}
        own = {"organisation_id": self.actor.organisation_id, "name": "for good"}
        return Budget.objects.get_or_create(**own, defaults=found)[0]

    def period(self) -> BudgetPeriod:
        budget = self.budget()
        own = {"organisation_id": self.actor.organisation_id, "measure": "tokens", "is_hard": True, "limit": 1_000}
        return BudgetPeriod.objects.get_or_create(budget=budget, starts_at=budget.created_at, defaults=own)[0]

    def rule_content(self) -> approval_rules.RuleContent:
        names: dict[str, Any] = {
            "toolkit": self.row(Toolkit).name if self.yes() else "",
            "role": self.row(Role).slug if self.yes() else "",
            "agent": self.row(Agent).slug if self.yes() else "",
        }
        return approval_rules.RuleContent(
            self.name(),
            self.random.randrange(200),
            self.row(Tool).name,
            **names,
            when=self.one(AskWhen.values),
            needs_other_person=self.yes(),
        )

    def server_content(self, name: str = "") -> servers.ServerContent:
        url = f"https://{self.name()}.example.org/mcp"
        return servers.ServerContent(name or self.name(), url=url, is_enabled=self.yes())

    def toolkit_content(self) -> toolkits.ToolkitContent:
        own = tuple(toolkits.ToolkitLine(tool.name) for tool in self.some_tools())
        return toolkits.ToolkitContent(self.name(), tools=own)

    def patterns(self) -> tuple[str, ...]:
        return self.one([(), ("*",), ("group:*",), tuple(tool.name for tool in self.some_tools())])

    def policy_content(self) -> policies.PolicyContent:
        profile = self.one(["", *PolicyProfile.objects.values_list("name", flat=True)])
        return policies.PolicyContent(profile, self.patterns(), self.patterns(), self.patterns())

    def profile_content(self) -> policies.ProfileContent:
        return policies.ProfileContent(self.name(), self.patterns() or ("*",), self.yes())

    def right(self) -> members.GivenRight:
        names = list(Category.objects.values_list("name", flat=True))
        return members.GivenRight(self.one(list(Right)), self.one(["", "", *names]))

    def some_tools(self) -> list[Tool]:
        return self.some(Tool.objects.order_by("pk"))

    def some_roles(self) -> list[Role]:
        return self.some(Role.objects.order_by("pk"))


def _request(dice: Dice) -> GrantRequest:
    found: GrantRequest = dice.one(
        GrantRequest.objects.select_related("tool__category", "category", "membership__user").filter(
            status=RequestStatus.WAITING
        )
    )
    return found


def _ask(dice: Dice, actor: Membership) -> None:
    thing = dice.thing()
    content = grant_requests.RequestContent(thing.get("tool", ""), thing.get("category", ""), "why")
    grant_requests.ask_for_grant(content, member=actor)


def _grant(dice: Dice) -> Grant:
    found: Grant = dice.one(Grant.objects.select_related("tool__category", "category", "membership__user"))
    return found


def _rules_of_some_roles(dice: Dice, actor: Membership) -> None:
    chosen = dice.some_roles()
    rules = {role: dice.rules() for role in chosen}
    roles.set_rules_of_roles(rules, actor=actor, stamp=roles.stamp_of(chosen))


def _undo_of_tools(dice: Dice, actor: Membership) -> None:
    newest = AuditEntry.objects.filter(actor=actor, target_type="tool", target_id="").order_by("-number").first()
    undo_change([newest.number] if newest else [0], actor=actor)


def _rule_of_a_role(dice: Dice, actor: Membership) -> None:
    role, [rule, *_] = dice.row(Role), [*dice.rules(), roles.Rule("allow", category=dice.row(Category).name)]
    stored = {(each.category, each.tool): each.effect for each in roles.rules_of(role)}
    roles.set_role_rule(role, rule, was=stored.get((rule.category, rule.tool), ""), actor=actor)


def _add_listed_model(dice: Dice, actor: Membership) -> None:
    """Of a list that was read before."""
    provider, name = dice.row(Provider), dice.name()
    findings = {"models": [{"name": name, "context_window": None}]}
    own = {"organisation_id": actor.organisation_id, "membership": actor, "deadline_at": timezone.now()}
    ConnectionTest.objects.filter(provider=provider).delete()
    ConnectionTest.objects.create(provider=provider, findings=findings, **own)
    listings.add_listed_models(provider, [name], actor=actor)


def _take_over(dice: Dice, actor: Membership) -> None:
    """Whoever may reset a member's password signs in as that member."""
    target = dice.member()
    resets.issue_reset_link(target, actor=actor)
    TAKEN_OVER.append(target)


#: Members for whom a reset link was made; the tests look whether they may use more than who made it.
TAKEN_OVER: list[Membership] = []

TYPED = {"token": "typed-secret"}


def _keep_tokens(dice: Dice, actor: Membership) -> None:
    """At the end of a sign-in of the actor's own account."""
    client = {
        "server_metadata": {"issuer": "https://far.example"},
        "client_id": "c",
        "redirect_uri": "https://us.example",
    }
    credential = dice.credential(kind="oauth", **client)
    begun = OAuthSignIn(
        credential=credential, issuer="https://far.example", client_id="c", redirect_uri="https://us.example"
    )
    sign_in.keep_tokens(credential, oauth_tokens.Tokens("a", "r", (), None), begun, actor=actor)


Write = Callable[[Dice, Membership], Any]

#: Every write of configuration, and how it is called with what the dice draw.
TABLE: dict[str, Write] = {
    "capabilities.agents.agents.giving.give_tools": lambda d, a: giving.give_tools(
        [d.row(Tool).name], Recipients((d.row(Agent).slug,)), actor=a
    ),
    "capabilities.agents.agents.giving.let_load": lambda d, a: giving.let_load(
        d.row(Agent), d.row(Toolkit).name, actor=a
    ),
    "capabilities.agents.agents.writes.create_agent": lambda d, a: agents.create_agent(d.agent_content(), actor=a),
    "capabilities.agents.agents.writes.update_agent": lambda d, a: agents.update_agent(
        d.row(Agent), d.agent_content(), actor=a
    ),
    "capabilities.agents.agents.writes.delete_agent": lambda d, a: agents.delete_agent(d.row(Agent), actor=a),
    "capabilities.catalogue.tools.writes.create_tool": lambda d, a: catalogue.create_tool(
        d.row(Category), d.definition(d.name()), actor=a
    ),
    "capabilities.catalogue.tools.writes.update_tool": lambda d, a: catalogue.update_tool(
        tool := d.row(Tool), d.definition(tool.name), actor=a
    ),
    "capabilities.catalogue.http_tools.writes.create_http_tool": lambda d, a: http_tools.create_http_tool(
        http_tools.HttpToolContent(d.definition(d.name()), category=d.row(Category).name), actor=a
    ),
    "capabilities.catalogue.http_tools.writes.update_http_tool": lambda d, a: http_tools.update_http_tool(
        tool := d.outside_tool(), http_tools.HttpToolContent(d.definition(tool.name)), actor=a
    ),
    "capabilities.catalogue.tools.writes.set_instructions": lambda d, a: catalogue.set_instructions(
        d.row(Tool), d.name(), actor=a
    ),
    "capabilities.catalogue.tools.writes.set_tool_enabled": lambda d, a: catalogue.set_tool_enabled(
        d.row(Tool), d.yes(), actor=a
    ),
    "capabilities.catalogue.tools.bulk.writes.change_tools": lambda d, a: bulk.change_tools(
        [tool.name for tool in d.some_tools()], bulk.ToolsChange(category=d.row(Category).name), actor=a
    ),
    "capabilities.catalogue.tools.bulk.undo.undo_change": _undo_of_tools,
    "capabilities.catalogue.tools.writes.set_tools_enabled": lambda d, a: catalogue.set_tools_enabled(
        [tool.name for tool in d.some_tools()], d.yes(), actor=a
    ),
    "capabilities.catalogue.python_tools.writes.save_python_version": lambda d, a: python_tools.save_python_version(
        None, d.row(Category), d.definition(d.name()), submit=d.yes(), actor=a, agent=d.one([None, d.row(Agent)])
    ),
    "capabilities.catalogue.python_tools.writes.save_test": lambda d, a: python_tools.save_test(
        d.row(Tool), d.name(), {"a": 1}, actor=a
    ),
    "capabilities.catalogue.python_tools.writes.delete_test": lambda d, a: python_tools.delete_test(d.test(), actor=a),
    "capabilities.catalogue.python_tools.writes.let_agents_make_tools": lambda d, a: python_tools.let_agents_make_tools(
        d.yes(), actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.create_module": lambda d, a: modules.create_module(
        d.name(), "", d.checked_module(), actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.update_module": lambda d, a: modules.update_module(
        d.module(VersionStatus.APPROVED).module, d.checked_module(), description=d.name(), actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.describe_module": lambda d, a: modules.describe_module(
        d.module(VersionStatus.PENDING).module, d.name(), actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.decide_module": lambda d, a: modules.decide_module(
        d.module(VersionStatus.PENDING), approve=d.yes(), reason="why", actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.roll_back_module": lambda d, a: modules.roll_back_module(
        d.module(VersionStatus.RETIRED).module, 1, actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.retire_module": lambda d, a: modules.retire_module(
        d.module(VersionStatus.APPROVED).module, actor=a
    ),
    "capabilities.catalogue.python_tools.helper_modules.writes.delete_module": lambda d, a: modules.delete_module(
        d.module(VersionStatus.APPROVED).module, actor=a
    ),
    "capabilities.catalogue.versions.writes.decide_version": lambda d, a: versions.decide_version(
        d.version(), approve=d.yes(), reason="why", actor=a
    ),
    "capabilities.catalogue.versions.writes.withdraw_version": lambda d, a: versions.withdraw_version(
        d.version(), actor=a
    ),
    "capabilities.catalogue.versions.writes.roll_back": lambda d, a: versions.roll_back(
        d.row(Tool), d.one([1, 2]), actor=a
    ),
    "capabilities.catalogue.versions.writes.retire": lambda d, a: versions.retire(d.outside_tool(), actor=a),
    "capabilities.catalogue.versions.writes.keep_tool_back": lambda d, a: versions.keep_tool_back(
        d.outside_tool() if d.yes() else d.row(Tool), d.name(), actor=a
    ),
    "capabilities.catalogue.versions.writes.release_tool": lambda d, a: versions.release_tool(
        d.outside_tool() if d.yes() else d.row(Tool), actor=a
    ),
    "capabilities.running.credentials.writes.create_credential": lambda d, a: credentials.create_credential(
        d.name(), d.credential_content(), actor=a
    ),
    "capabilities.running.credentials.writes.update_credential": lambda d, a: credentials.update_credential(
        d.credential(), d.credential_content(), actor=a
    ),
    "capabilities.running.credentials.writes.delete_credential": lambda d, a: credentials.delete_credential(
        d.credential(), actor=a
    ),
    "capabilities.running.credentials.writes.set_secret": lambda d, a: credentials.set_secret(
        d.credential(scope="organisation"), TYPED, actor=a
    ),
    "capabilities.running.credentials.writes.clear_secret": lambda d, a: credentials.clear_secret(
        d.credential(), actor=a
    ),
    "capabilities.running.credentials.writes.connect_account": lambda d, a: credentials.connect_account(
        d.credential(), TYPED, actor=a
    ),
    "capabilities.running.credentials.writes.disconnect_account": lambda d, a: credentials.disconnect_account(
        d.secret(), actor=a
    ),
    "capabilities.running.credentials.oauth.sign_in.forget_client": lambda d, a: sign_in.forget_client(
        d.credential(), actor=a
    ),
    "capabilities.running.credentials.oauth.sign_in.keep_tokens": _keep_tokens,
    "capabilities.catalogue.categories.writes.create_category": lambda d, a: categories.create_category(
        d.name(), d.category_content(), actor=a
    ),
    "capabilities.catalogue.categories.writes.update_category": lambda d, a: categories.update_category(
        d.row(Category), d.category_content(), actor=a
    ),
    "capabilities.catalogue.categories.writes.delete_category": lambda d, a: categories.delete_category(
        d.row(Category), actor=a
    ),
    "capabilities.catalogue.categories.writes.move_tool": lambda d, a: categories.move_tool(
        d.row(Tool), d.row(Category).name, actor=a
    ),
    "capabilities.catalogue.imports.writes.start.start_import": lambda d, a: start_import(
        ImportSource.OPENAPI, actor=a, document="{}"
    ),
    "capabilities.catalogue.imports.writes.decide.accept_imported": lambda d, a: imports.accept_imported(
        imports.import_rows(d.tool_import()), d.row(Category), actor=a
    ),
    "capabilities.agents.sharing.imported_toolkits.save_imported_toolkit": lambda d, a: (
        imported_toolkits.save_imported_toolkit(d.toolkit_import(), actor=a)
    ),
    "capabilities.agents.sharing.publications.writes.publish_toolkit": lambda d, a: publications.publish_toolkit(
        d.row(Toolkit), d.one(["installation", "address"]), actor=a
    ),
    "capabilities.agents.sharing.publications.writes.withdraw_publication": lambda d, a: (
        publications.withdraw_publication(d.publication(), actor=a)
    ),
    "capabilities.agents.sharing.publications.writes.import_publication": lambda d, a: publications.import_publication(
        d.publication(), actor=a
    ),
    "capabilities.catalogue.imports.writes.decide.dismiss_imported": lambda d, a: imports.dismiss_imported(
        imports.import_rows(d.tool_import()), actor=a
    ),
    "capabilities.catalogue.imports.writes.decide.restore_imported": lambda d, a: imports.restore_imported(
        d.dismissed(), actor=a
    ),
    "capabilities.catalogue.imports.writes.change.set_effects": lambda d, a: import_changes.set_effects(
        imports.import_rows(d.tool_import()), d.one(["read", "write", "external"]), actor=a
    ),
    "capabilities.catalogue.imports.writes.change.change_imported": lambda d, a: import_changes.change_imported(
        d.one(imports.import_rows(d.tool_import())), name=d.name(), actor=a
    ),
    "capabilities.catalogue.imports.writes.change.set_base_url": lambda d, a: import_changes.set_base_url(
        d.tool_import(), "https://other.example.org", actor=a
    ),
    "capabilities.catalogue.imports.writes.change.close_import": lambda d, a: import_changes.close_import(
        d.tool_import(), actor=a
    ),
    "capabilities.access.approval_rules.writes.create_rule": lambda d, a: approval_rules.create_rule(
        d.rule_content(), actor=a
    ),
    "capabilities.access.approval_rules.writes.update_rule": lambda d, a: approval_rules.update_rule(
        d.row(ApprovalRule), d.rule_content(), actor=a
    ),
    "capabilities.access.approval_rules.writes.delete_rule": lambda d, a: approval_rules.delete_rule(
        d.row(ApprovalRule), actor=a
    ),
    "capabilities.agents.runtime_config.writes.set_runtime_config": lambda d, a: runtime_config.set_runtime_config(
        d.runtime_layer(), {"tools": {d.row(Tool).name: {"timeout_sec": 9}}}, actor=a
    ),
    "capabilities.agents.runtime_config.writes.set_knobs_of": lambda d, a: runtime_config.set_knobs_of(
        [d.row(Tool).name], {"ask": d.one(["off", "always"])}, actor=a
    ),
    "capabilities.agents.runtime_config.writes.set_tool_knobs": lambda d, a: runtime_config.set_tool_knobs(
        d.runtime_layer(), d.row(Tool).name, {"ask": "off"} if d.yes() else {}, actor=a
    ),
    "capabilities.agents.runtime_config.writes.set_shared_knobs": lambda d, a: runtime_config.set_shared_knobs(
        d.runtime_layer(), d.one(["", "zeus"]), {"result_min_chars": 700}, actor=a
    ),
    "capabilities.agents.runtime_config.writes.clear_runtime_config": lambda d, a: runtime_config.clear_runtime_config(
        d.runtime_layer(), actor=a
    ),
    "sessions.budgets.writes.create_budget": lambda d, a: budgets.create_budget(d.budget_content(), actor=a),
    "sessions.budgets.writes.update_budget": lambda d, a: budgets.update_budget(
        d.budget(), replace(budgets.budget_content(d.budget()), limit=5), actor=a
    ),
    "sessions.budgets.writes.switch_budget": lambda d, a: budgets.switch_budget(d.budget(), d.yes(), actor=a),
    "sessions.budgets.writes.delete_budget": lambda d, a: budgets.delete_budget(d.budget(), actor=a),
    "sessions.budgets.writes.reset_period": lambda d, a: budgets.reset_period(d.period(), actor=a),
    "sessions.budgets.writes.top_up_period": lambda d, a: budgets.top_up_period(d.period(), 5, actor=a),
    "toolhub.tenants.organisation.writes.update_organisation": lambda d, a: organisation.update_organisation(
        organisation.OrganisationContent(d.one(["Acme", "Fresh"]), "UTC", d.one(["en-gb", "de"]), d.yes()), actor=a
    ),
    "sessions.budgets.writes.set_spending_rules": lambda d, a: budgets.set_spending_rules(
        d.one(["UTC", "Asia/Tokyo"]), counts_unpriced_as_free=d.yes(), actor=a
    ),
    "capabilities.catalogue.servers.writes.create_server": lambda d, a: servers.create_server(
        d.server_content(), actor=a
    ),
    "capabilities.catalogue.servers.writes.update_server": lambda d, a: servers.update_server(
        server := d.row(McpServer), d.server_content(server.name), actor=a
    ),
    "capabilities.catalogue.servers.writes.delete_server": lambda d, a: servers.delete_server(
        d.row(McpServer), actor=a
    ),
    "capabilities.catalogue.servers.writes.use_as_offered": lambda d, a: servers.use_as_offered(
        server := d.row(McpServer), [each.name for each in server.tools.all()], actor=a
    ),
    "capabilities.agents.hooks.writes.create_hook": lambda d, a: hooks.create_hook(d.hook_content(), actor=a),
    "capabilities.agents.hooks.writes.update_hook": lambda d, a: hooks.update_hook(
        d.row(Hook), d.hook_content(), actor=a
    ),
    "capabilities.agents.hooks.writes.delete_hook": lambda d, a: hooks.delete_hook(d.row(Hook), actor=a),
    "capabilities.access.requests.writes.ask_for_grant": _ask,
    "capabilities.access.requests.writes.withdraw_request": lambda d, a: grant_requests.withdraw_request(
        _request(d), member=a
    ),
    "capabilities.access.requests.writes.grant_request": lambda d, a: grant_requests.grant_request(
        _request(d), hours=2, actor=a
    ),
    "capabilities.access.requests.writes.refuse_request": lambda d, a: grant_requests.refuse_request(
        _request(d), answer="no", actor=a
    ),
    "capabilities.access.grants.writes.give_grant": lambda d, a: grants.give_grant(
        grants.GrantContent(d.member().public_id, d.one(Effect.values), **d.thing(), expires_at=d.end()), actor=a
    ),
    "capabilities.access.grants.writes.update_grant": lambda d, a: grants.update_grant(
        _grant(d), reason=d.name(), expires_at=d.end(), actor=a
    ),
    "capabilities.access.grants.writes.revoke_grant": lambda d, a: grants.revoke_grant(_grant(d), actor=a),
    "capabilities.access.policies.writes.save_policy": lambda d, a: policies.save_policy(
        d.one([None, d.row(Provider)]), d.policy_content(), actor=a
    ),
    "capabilities.access.policies.writes.create_profile": lambda d, a: policies.create_profile(
        d.profile_content(), actor=a
    ),
    "capabilities.access.policies.writes.update_profile": lambda d, a: policies.update_profile(
        d.row(PolicyProfile), d.profile_content(), actor=a
    ),
    "capabilities.access.policies.writes.delete_profile": lambda d, a: policies.delete_profile(
        d.row(PolicyProfile), actor=a
    ),
    "capabilities.language_models.prices.writes.add_price": lambda d, a: prices.add_price(
        d.row(LanguageModel), prices.PriceContent(input=Decimal(1), output=Decimal(2)), actor=a
    ),
    "capabilities.language_models.prices.writes.remove_price": lambda d, a: prices.remove_price(
        d.row(ModelPrice), actor=a
    ),
    "capabilities.language_models.providers.environment.back_to_offline_model": lambda d, a: (
        environment_provider.back_to_offline_model(actor=a)
    ),
    "capabilities.language_models.providers.learning.forget_lesson": lambda d, a: learning.forget_lesson(
        d.row(LanguageModel), "omit:stream_options", actor=a
    ),
    "capabilities.language_models.providers.listings.add_listed_models": _add_listed_model,
    "capabilities.language_models.providers.refused_tools.try_again": lambda d, a: refused_tools.try_again(
        d.row(ToolRefusal), actor=a
    ),
    "capabilities.language_models.providers.writes.save_provider": lambda d, a: providers.save_provider(
        None, providers.ProviderContent(d.name(), "P", "https://api.openai.com/v1", d.name()), actor=a
    ),
    "capabilities.language_models.providers.writes.delete_provider": lambda d, a: providers.delete_provider(
        d.row(Provider), actor=a
    ),
    "capabilities.language_models.providers.writes.save_model": lambda d, a: providers.save_model(
        d.row(Provider), None, providers.ModelContent(d.name()), actor=a
    ),
    "capabilities.language_models.providers.writes.delete_model": lambda d, a: providers.delete_model(
        d.row(LanguageModel), actor=a
    ),
    "capabilities.access.roles.writes.create_role": lambda d, a: roles.create_role(d.role_content(), actor=a),
    "capabilities.access.roles.writes.update_role": lambda d, a: roles.update_role(
        d.row(Role), d.role_content(), actor=a
    ),
    "capabilities.access.roles.writes.set_role_rules": lambda d, a: roles.set_role_rules(
        d.row(Role), d.rules(), actor=a
    ),
    "capabilities.access.roles.writes.set_role_rule": _rule_of_a_role,
    "capabilities.access.roles.writes.set_rules_of_roles": _rules_of_some_roles,
    "capabilities.access.roles.writes.delete_role": lambda d, a: roles.delete_role(d.row(Role), actor=a),
    "capabilities.access.roles.writes.assign_role": lambda d, a: roles.assign_role(d.row(Role), [d.member()], actor=a),
    "capabilities.access.roles.writes.unassign_role": lambda d, a: roles.unassign_role(
        d.row(Role), [d.member()], actor=a
    ),
    "capabilities.access.roles.writes.set_roles_of": lambda d, a: roles.set_roles_of(
        d.member(), [role.slug for role in d.some_roles()], actor=a
    ),
    "capabilities.running.services.writes.save_service": lambda d, a: services.save_service(
        registry.services["searxng"], {"url": "https://searx.example.com"}, actor=a
    ),
    "capabilities.running.services.writes.clear_service": lambda d, a: services.clear_service(
        registry.services["searxng"], actor=a
    ),
    "capabilities.agents.toolkits.writes.create_toolkit": lambda d, a: toolkits.create_toolkit(
        d.toolkit_content(), actor=a
    ),
    "capabilities.agents.toolkits.writes.update_toolkit": lambda d, a: toolkits.update_toolkit(
        d.row(Toolkit), d.toolkit_content(), actor=a
    ),
    "capabilities.agents.toolkits.writes.delete_toolkit": lambda d, a: toolkits.delete_toolkit(d.row(Toolkit), actor=a),
    "toolhub.tenants.access.revoke_token": lambda d, a: access.revoke_token(d.row(ApiToken), actor=a),
    "toolhub.tenants.people.invitations.invite": lambda d, a: invitations.invite(
        d.one([f"{d.name()}@example.com", "waiting@example.com"]),
        d.one(list(Access)),
        actor=a,
        roles=[each.slug for each in d.some(Role.objects.order_by("pk"))],
    ),
    "toolhub.tenants.people.invitations.revoke_invitation": lambda d, a: invitations.revoke_invitation(
        d.row(Invitation), actor=a
    ),
    "toolhub.tenants.people.writes.change_member": lambda d, a: members.change_member(
        d.member(), access=d.one(list(Access)), rights=[d.right()], actor=a
    ),
    "toolhub.tenants.people.writes.set_access": lambda d, a: members.set_access(
        d.member(), d.one(list(Access)), actor=a
    ),
    "toolhub.tenants.people.writes.give_right": lambda d, a: members.give_right(d.member(), d.right(), actor=a),
    "toolhub.tenants.people.writes.take_right": lambda d, a: members.take_right(d.member(), d.right(), actor=a),
    "toolhub.tenants.people.writes.remove_member": lambda d, a: members.remove_member(d.member(), actor=a),
    "toolhub.tenants.identity.resets.issue_reset_link": _take_over,
}
#: Writes about oneself that no actor is named for.
OWN_WRITES: dict[str, Write] = {
    "toolhub.tenants.tokens.writes.issue_own_token": lambda d, a: tokens.issue_own_token(
        a, d.name(), list(Scope), None
    ),
}
