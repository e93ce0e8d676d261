"""The pages of catalogue, agents and permissions, under /o/<org>/."""

from __future__ import annotations

from django.urls import path, re_path

from capabilities.access.approval_rules import views as approval_rules
from capabilities.access.grants import views as grants
from capabilities.access.members import views as members
from capabilities.access.policies import views as policies
from capabilities.access.requests import views as grant_requests
from capabilities.access.roles import matrix_views
from capabilities.access.roles import views as roles
from capabilities.agents.agents import views as agents
from capabilities.agents.hooks import views as hooks
from capabilities.agents.runtime_config import views as runtime_config
from capabilities.agents.sharing import views as sharing
from capabilities.agents.sharing.publications import views as publications
from capabilities.agents.toolkits import views as toolkits
from capabilities.catalogue.categories import views as categories
from capabilities.catalogue.http_tools import views as http_tools
from capabilities.catalogue.imports import views as importers
from capabilities.catalogue.python_tools import views as python_tools
from capabilities.catalogue.python_tools.helper_modules import views as modules
from capabilities.catalogue.servers import views as servers
from capabilities.catalogue.tools import switch_views
from capabilities.catalogue.tools import views as tools
from capabilities.catalogue.tools.bulk import views as bulk
from capabilities.catalogue.tools.recipients import views as recipients
from capabilities.catalogue.versions import views as versions
from capabilities.language_models.prices import views as prices
from capabilities.language_models.providers import views as providers
from capabilities.running.assistant import assistants_routes
from capabilities.running.credentials import views as credentials
from capabilities.running.push import views as push
from capabilities.running.services import views as services

TOOL = r"^tools/(?P<name>[a-zA-Z0-9_-]{1,64})/"
VERSION = TOOL + r"versions/(?P<number>[0-9]{1,6})/"
HTTP_TOOL = r"^http-tools/(?P<name>[a-zA-Z0-9_-]{1,64})/"
TOOLKIT = r"^toolkits/(?P<name>[a-zA-Z0-9][a-zA-Z0-9_-]{0,63})/"
PROFILE = r"^policies/profiles/(?P<name>[a-zA-Z0-9][a-zA-Z0-9_-]{0,63})/"
MODULE = r"^python-modules/(?P<name>[a-z][a-z0-9_]{0,63})/"
MODULE_VERSION = MODULE + r"versions/(?P<number>[0-9]{1,6})/"
SERVER = r"^servers/(?P<name>[a-z0-9][a-z0-9_-]{0,31})/"
CATEGORY = r"^categories/(?P<name>[a-zA-Z0-9][a-zA-Z0-9_-]{0,63})/"

urlpatterns = [
    re_path(TOOLKIT + r"agents/\Z", agents.toolkit_agents, name="toolkit_agents"),
    re_path(TOOLKIT + r"export/\Z", sharing.toolkit_export, name="toolkit_export"),
    re_path(TOOLKIT + r"publish/\Z", publications.toolkit_publish, name="toolkit_publish"),
    path("imports/<uuid:import_id>/toolkit/", sharing.import_toolkit, name="import_toolkit"),
    path("published-toolkits/", publications.publication_list, name="publication_list"),
    path("published-toolkits/<uuid:publication_id>/", publications.publication_detail, name="publication_detail"),
    path(
        "published-toolkits/<uuid:publication_id>/withdraw/",
        publications.publication_withdraw,
        name="publication_withdraw",
    ),
    path(
        "published-toolkits/<uuid:publication_id>/import/", publications.publication_import, name="publication_import"
    ),
    path("tool-files/", sharing.tool_file_list, name="tool_file_list"),
    *assistants_routes(
        [
            path("notifications/", push.browser_list, name="browser_list"),
            path("notifications/<uuid:own_browser>/remove/", push.browser_remove, name="browser_remove"),
        ]
    ),
    re_path(TOOL + r"\Z", tools.tool_detail, name="tool_detail"),
    re_path(TOOL + r"members/\Z", tools.tool_members, name="tool_members"),
    re_path(TOOL + r"refusals/(?P<refusal_id>[0-9a-f-]{36})/again/\Z", tools.tool_try_again, name="tool_try_again"),
    re_path(TOOL + r"instructions/\Z", tools.tool_instruct, name="tool_instruct"),
    re_path(TOOL + r"give/\Z", recipients.tool_give, name="tool_give"),
    re_path(TOOL + r"move/\Z", tools.tool_move, name="tool_move"),
    path("python-tools/new/", python_tools.tool_python_create, name="tool_python_create"),
    path("python-tools/agents/", python_tools.tool_agents_switch, name="tool_agents_switch"),
    re_path(TOOL + r"python/\Z", python_tools.tool_python_update, name="tool_python_update"),
    re_path(TOOL + r"tests/\Z", python_tools.tool_test_save, name="tool_test_save"),
    re_path(
        TOOL + r"tests/(?P<test_id>[0-9a-f-]{36})/delete/\Z", python_tools.tool_test_delete, name="tool_test_delete"
    ),
    re_path(TOOL + r"retire/\Z", versions.tool_retire, name="tool_retire"),
    re_path(TOOL + r"keep-back/\Z", versions.tool_keep_back, name="tool_keep_back"),
    re_path(TOOL + r"release/\Z", versions.tool_release, name="tool_release"),
    re_path(TOOL + r"versions/\Z", versions.tool_versions, name="tool_versions"),
    re_path(VERSION + r"\Z", versions.tool_version, name="tool_version"),
    re_path(VERSION + r"decide/\Z", versions.tool_version_decide, name="tool_version_decide"),
    re_path(VERSION + r"withdraw/\Z", versions.tool_version_withdraw, name="tool_version_withdraw"),
    re_path(VERSION + r"rollback/\Z", versions.tool_version_rollback, name="tool_version_rollback"),
    re_path(
        TOOL + r"versions/(?P<first>[0-9]{1,6})\.\.(?P<second>[0-9]{1,6})/\Z",
        versions.tool_version_difference,
        name="tool_version_difference",
    ),
    path("python-modules/", modules.module_list, name="module_list"),
    path("python-modules/new/", modules.module_create, name="module_create"),
    re_path(MODULE + r"\Z", modules.module_detail, name="module_detail"),
    re_path(MODULE + r"edit/\Z", modules.module_update, name="module_update"),
    re_path(MODULE + r"uses/\Z", modules.module_uses, name="module_uses"),
    re_path(MODULE + r"retire/\Z", modules.module_retire, name="module_retire"),
    re_path(MODULE + r"delete/\Z", modules.module_delete, name="module_delete"),
    re_path(MODULE + r"versions/\Z", modules.module_versions, name="module_versions"),
    re_path(MODULE_VERSION + r"\Z", modules.module_version, name="module_version"),
    re_path(MODULE_VERSION + r"decide/\Z", modules.module_version_decide, name="module_version_decide"),
    re_path(MODULE_VERSION + r"rollback/\Z", modules.module_version_rollback, name="module_version_rollback"),
    re_path(
        MODULE + r"versions/(?P<first>[0-9]{1,6})\.\.(?P<second>[0-9]{1,6})/\Z",
        modules.module_version_difference,
        name="module_version_difference",
    ),
    path("approval-versions/", versions.approval_versions, name="approval_versions"),
    path("http-tools/new/", http_tools.http_tool_create, name="http_tool_create"),
    re_path(HTTP_TOOL + r"edit/\Z", http_tools.http_tool_update, name="http_tool_update"),
    path("categories/", categories.category_list, name="category_list"),
    path("categories/new/", categories.category_create, name="category_create"),
    re_path(CATEGORY + r"\Z", categories.category_update, name="category_update"),
    re_path(CATEGORY + r"delete/\Z", categories.category_delete, name="category_delete"),
    path("toolkits/", toolkits.toolkit_list, name="toolkit_list"),
    path("toolkits/new/", toolkits.toolkit_create, name="toolkit_create"),
    re_path(TOOLKIT + r"\Z", toolkits.toolkit_detail, name="toolkit_detail"),
    re_path(TOOLKIT + r"delete/\Z", toolkits.toolkit_delete, name="toolkit_delete"),
    path("approval-rules/", approval_rules.approval_rules, name="approval_rules"),
    path("approval-rules/new/", approval_rules.approval_rule_create, name="approval_rule_create"),
    path("approval-rules/<uuid:rule_id>/", approval_rules.approval_rule_edit, name="approval_rule_edit"),
    path("approval-rules/<uuid:rule_id>/delete/", approval_rules.approval_rule_delete, name="approval_rule_delete"),
    path("runtime/", runtime_config.runtime_list, name="runtime_list"),
    path("runtime/find/", runtime_config.runtime_find, name="runtime_find"),
    re_path(r"^runtime/tools/(?P<name>[a-zA-Z0-9_-]{1,64})/\Z", runtime_config.runtime_tool, name="runtime_tool"),
    *(
        path(f"runtime/{address}{end}", view, {"kind": kind}, name=f"runtime_{kind}{suffix}")
        for kind, address in (
            ("organisation", "organisation/"),
            ("provider", "providers/<slug:slug>/"),
            ("agent", "agents/<slug:slug>/"),
        )
        for end, suffix, view in (
            ("", "", runtime_config.runtime_layer),
            ("remove/", "_remove", runtime_config.runtime_remove),
        )
    ),
    path("imports/", importers.import_list, name="import_list"),
    path("imports/to-review/", importers.import_review_list, name="import_review_list"),
    path("imports/new/", importers.import_create, name="import_create"),
    path("imports/<uuid:import_id>/", importers.import_detail, name="import_detail"),
    path("imports/<uuid:import_id>/decide/", importers.import_decide, name="import_decide"),
    path("imports/<uuid:import_id>/address/", importers.import_address, name="import_address"),
    path("imports/<uuid:import_id>/close/", importers.import_close, name="import_close"),
    path("imports/<uuid:import_id>/give/", importers.import_give, name="import_give"),
    path("imports/<uuid:import_id>/tools/<uuid:imported_id>/", importers.import_tool, name="import_tool"),
    path("services/", services.service_list, name="service_list"),
    path("services/<str:service>/", services.service_update, name="service_update"),
    path("services/<str:service>/clear/", services.service_clear, name="service_clear"),
    path("servers/", servers.server_list, name="server_list"),
    path("servers/new/", servers.server_create, name="server_create"),
    re_path(SERVER + r"\Z", servers.server_detail, name="server_detail"),
    re_path(SERVER + r"edit/\Z", servers.server_update, name="server_update"),
    re_path(SERVER + r"read/\Z", servers.server_read, name="server_read"),
    re_path(SERVER + r"accept/\Z", servers.server_accept, name="server_accept"),
    re_path(SERVER + r"delete/\Z", servers.server_delete, name="server_delete"),
    path("credentials/", credentials.credential_list, name="credential_list"),
    path("credentials/new/", credentials.credential_create, name="credential_create"),
    path("credentials/<slug:credential>/", credentials.credential_detail, name="credential_detail"),
    path("credentials/<slug:credential>/edit/", credentials.credential_update, name="credential_update"),
    path("credentials/<slug:credential>/clear/", credentials.credential_clear, name="credential_clear"),
    path("credentials/<slug:credential>/delete/", credentials.credential_delete, name="credential_delete"),
    path("credentials/<slug:credential>/forget/", credentials.credential_forget_client, name="credential_forget"),
    path("credentials/<slug:credential>/sign-in/", credentials.credential_sign_in, name="credential_sign_in"),
    path(
        "credentials/<slug:credential>/accounts/<uuid:account_id>/disconnect/",
        credentials.credential_disconnect,
        name="credential_disconnect",
    ),
    path("accounts/", credentials.accounts, name="accounts"),
    path("accounts/<slug:credential>/", credentials.accounts_connect, name="accounts_connect"),
    path("accounts/<slug:credential>/sign-in/", credentials.accounts_sign_in, name="accounts_sign_in"),
    path("accounts/<slug:credential>/disconnect/", credentials.accounts_disconnect, name="accounts_disconnect"),
    path("policies/", policies.policy_list, name="policy_list"),
    path("policies/organisation/", policies.policy_update, name="policy_update"),
    path("policies/providers/<slug:slug>/", policies.policy_provider_update, name="policy_provider_update"),
    path("policies/profiles/", policies.policy_profile_list, name="policy_profile_list"),
    path("policies/profiles/new/", policies.policy_profile_create, name="policy_profile_create"),
    re_path(PROFILE + r"\Z", policies.policy_profile_update, name="policy_profile_update"),
    re_path(PROFILE + r"delete/\Z", policies.policy_profile_delete, name="policy_profile_delete"),
    path("agents/", agents.agent_list, name="agent_list"),
    path("agents/new/", agents.agent_create, name="agent_create"),
    path("agents/<slug:slug>/delete/", agents.agent_delete, name="agent_delete"),
    path("providers/", providers.provider_list, name="provider_list"),
    path("providers/offline/", providers.provider_offline, name="provider_offline"),
    path("providers/new/", providers.provider_create, name="provider_create"),
    path("providers/<slug:slug>/edit/", providers.provider_update, name="provider_update"),
    path("providers/<slug:slug>/delete/", providers.provider_delete, name="provider_delete"),
    path("providers/<slug:slug>/models/new/", providers.model_create, name="model_create"),
    path("providers/<slug:slug>/models/<uuid:model_id>/", providers.model_update, name="model_update"),
    path("providers/<slug:slug>/models/<uuid:model_id>/forget/", providers.model_forget, name="model_forget"),
    path("providers/<slug:slug>/models/<uuid:model_id>/delete/", providers.model_delete, name="model_delete"),
    path("prices/", prices.price_list, name="price_list"),
    path("prices/<uuid:model_id>/", prices.price_model, name="price_model"),
    path("prices/<uuid:model_id>/public/", prices.price_public, name="price_public"),
    path("prices/<uuid:model_id>/<uuid:price_id>/remove/", prices.price_remove, name="price_remove"),
    path("hooks/", hooks.hook_list, name="hook_list"),
    path("hooks/new/", hooks.hook_create, name="hook_create"),
    path("hooks/<uuid:hook_id>/", hooks.hook_update, name="hook_update"),
    path("hooks/<uuid:hook_id>/delete/", hooks.hook_delete, name="hook_delete"),
    path("roles/", roles.role_list, name="role_list"),
    path("roles/<slug:slug>/delete/", roles.role_delete, name="role_delete"),
    re_path(
        r"^roles/(?P<slug>[-a-zA-Z0-9_]+)/tools/(?P<name>[a-zA-Z0-9][a-zA-Z0-9_-]{0,63})/\Z",
        roles.role_tools,
        name="role_tools",
    ),
    path("grants/", grants.grant_list, name="grant_list"),
    path("grants/new/", grants.grant_create, name="grant_create"),
    path("access-requests/", grant_requests.request_list, name="request_list"),
    path("access-requests/<uuid:own_request>/withdraw/", grant_requests.request_withdraw, name="request_withdraw"),
    path("access-requests/<uuid:request_id>/grant/", grant_requests.request_grant, name="request_grant"),
    path("access-requests/<uuid:request_id>/refuse/", grant_requests.request_refuse, name="request_refuse"),
    path("roles/matrix/", matrix_views.matrix, name="role_matrix"),
    path("roles/new/", roles.role_create, name="role_create"),
    path("roles/<slug:slug>/", roles.role_detail, name="role_detail"),
    path("agents/<slug:slug>/", agents.agent_detail, name="agent_detail"),
    path("members/<uuid:member_id>/tools/", members.member_tools, name="member_tools"),
    path("members/<uuid:member_id>/roles/", members.member_roles, name="member_roles"),
    path("members/<uuid:member_id>/grant/", members.member_grant, name="member_grant"),
    path("grants/<uuid:grant_id>/revoke/", grants.grant_revoke, name="grant_revoke"),
    path("agents/<slug:slug>/edit/", agents.agent_update, name="agent_update"),
    re_path(TOOLKIT + r"edit/\Z", toolkits.toolkit_update, name="toolkit_update"),
    path("catalogue/switch/", switch_views.tools_switch, name="tools_switch"),
    path("catalogue/change/", bulk.tools_change, name="tools_change"),
    path("catalogue/undo/", bulk.tools_undo, name="tools_undo"),
    re_path(TOOL + r"switch/\Z", switch_views.tool_switch, name="tool_switch"),
]
