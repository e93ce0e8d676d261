"""The pages of what the catalogue's and the permissions' audit entries name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from django.urls import reverse
from django.utils.http import urlencode

from capabilities.models import (
    Agent,
    ApprovalRule,
    Category,
    Grant,
    GrantRequest,
    HelperModule,
    Hook,
    LanguageModel,
    McpServer,
    ModelPrice,
    Policy,
    PolicyProfile,
    Provider,
    Role,
    RuntimeConfig,
    ServiceSetting,
    StoredCredential,
    Tool,
    ToolImport,
    Toolkit,
)
from toolhub.tenants.models import Membership, Right
from toolhub.tenants.targets import FindAddresses, rows_with_page


def _runtime_settings(reader: Membership, ids: Collection[UUID]) -> dict[UUID, str]:
    """The page of the layer."""
    if not reader.has_right(Right.POLICIES):
        return {}
    rows = RuntimeConfig.objects.filter(public_id__in=ids)
    org = reader.organisation.slug
    return {
        public_id: reverse(f"runtime_{layer}", args=[org, *filter(None, (provider, agent))])
        for public_id, layer, provider, agent in rows.values_list("public_id", "layer", "provider__slug", "agent__slug")
    }


def _grants(reader: Membership, ids: Collection[UUID]) -> dict[UUID, str]:
    """The list of grants, narrowed to the member."""
    if not reader.reach(Right.ROLES):
        return {}
    page = reverse("grant_list", args=[reader.organisation.slug])
    rows = Grant.objects.filter(public_id__in=ids).values_list("public_id", "membership__user__email")
    return {public_id: f"{page}?{urlencode({'q': email})}" for public_id, email in rows}


def _requests(reader: Membership, ids: Collection[UUID]) -> dict[UUID, str]:
    """The list of requests, where whoever may decide finds it."""
    if not reader.reach(Right.ROLES):
        return {}
    page = reverse("request_list", args=[reader.organisation.slug])
    return dict.fromkeys(GrantRequest.objects.filter(public_id__in=ids).values_list("public_id", flat=True), page)


def _policies(reader: Membership, ids: Collection[UUID]) -> dict[UUID, str]:
    """The page of the organisation's, or of the provider's."""
    if not reader.reach(Right.POLICIES):
        return {}
    org = reader.organisation.slug
    rows = Policy.objects.filter(public_id__in=ids).values_list("public_id", "provider__slug")
    return {
        key: reverse("policy_provider_update", args=[org, slug]) if slug else reverse("policy_update", args=[org])
        for key, slug in rows
    }


TARGET_PAGES: Mapping[str, FindAddresses] = {
    "tool": rows_with_page(lambda reader: Tool.objects.all(), "tool_detail", "name"),
    "toolkit": rows_with_page(lambda reader: Toolkit.objects.all(), "toolkit_detail", "name"),
    "agent": rows_with_page(lambda reader: Agent.objects.all(), "agent_detail", "slug"),
    "category": rows_with_page(lambda reader: Category.objects.all(), "category_update", "name", right=Right.CATALOGUE),
    "servicesetting": rows_with_page(
        lambda reader: ServiceSetting.objects.all(), "service_update", "service", right=Right.CATALOGUE
    ),
    "mcpserver": rows_with_page(lambda reader: McpServer.objects.all(), "server_detail", "name", right=Right.CATALOGUE),
    "helpermodule": rows_with_page(
        lambda reader: HelperModule.objects.all(), "module_detail", "name", right=Right.CATALOGUE
    ),
    "role": rows_with_page(lambda reader: Role.objects.all(), "role_detail", "slug", right=Right.ROLES),
    "provider": rows_with_page(lambda reader: Provider.objects.all(), "provider_update", "slug", right=Right.PROVIDERS),
    "languagemodel": rows_with_page(
        lambda reader: LanguageModel.objects.all(),
        "model_update",
        "provider__slug",
        "public_id",
        right=Right.PROVIDERS,
    ),
    "modelprice": rows_with_page(
        lambda reader: ModelPrice.objects.all(), "price_model", "model__public_id", right=Right.BUDGETS
    ),
    "policy": _policies,
    "policyprofile": rows_with_page(
        lambda reader: PolicyProfile.objects.all(), "policy_profile_update", "name", right=Right.POLICIES
    ),
    "storedcredential": rows_with_page(
        lambda reader: StoredCredential.objects.all(), "credential_detail", "name", right=Right.CATALOGUE
    ),
    "toolimport": rows_with_page(
        lambda reader: ToolImport.objects.all(), "import_detail", "public_id", right=Right.CATALOGUE
    ),
    "hook": rows_with_page(lambda reader: Hook.objects.all(), "hook_update", "public_id", right=Right.HOOKS),
    "runtimeconfig": _runtime_settings,
    "approvalrule": rows_with_page(
        lambda reader: ApprovalRule.objects.all(), "approval_rule_edit", "public_id", right=Right.POLICIES
    ),
    "grant": _grants,
    "grantrequest": _requests,
}
