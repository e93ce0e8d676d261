"""REST: the catalogue, who may use it, and what agents make of it. One module a noun, as with the models."""

from __future__ import annotations

from django.urls import URLPattern, path

from capabilities.access.approval_rules.api import RuleDetail, RuleList
from capabilities.access.grants.api import GrantDetail, GrantList
from capabilities.access.members.api import RegistryView
from capabilities.access.policies.api import OrganisationPolicy, PolicyList, ProfileDetail, ProfileList, ProviderPolicy
from capabilities.access.requests.api import (
    GrantRequestDetail,
    GrantRequestGrant,
    GrantRequestList,
    GrantRequestRefuse,
    GrantRequestWithdraw,
)
from capabilities.access.roles.api import MemberRolesView, RoleDetail, RoleList
from capabilities.agents.agents.api import AgentDetail, AgentList
from capabilities.agents.hooks.api import HookDetail, HookList
from capabilities.agents.runtime_config.api import (
    AgentConfig,
    OrganisationConfig,
    ProviderConfig,
    ResolvedToolView,
    RuntimeConfigList,
)
from capabilities.agents.sharing.api import ImportToolkit, ToolFileList, ToolkitExport
from capabilities.agents.sharing.publications.api import PublicationDetail, PublicationImport, PublicationList
from capabilities.agents.toolkits.api import ToolkitDetail, ToolkitList
from capabilities.catalogue.categories.api import CategoryDetail, CategoryList
from capabilities.catalogue.http_tools.api import HttpToolDetail, HttpToolList, HttpToolPreview
from capabilities.catalogue.imports.api import (
    ImportAccept,
    ImportDetail,
    ImportDismiss,
    ImportedToolDetail,
    ImportedToolList,
    ImportList,
)
from capabilities.catalogue.python_tools.api import (
    AgentsMakeTools,
    PythonToolCheck,
    PythonToolDetail,
    PythonToolList,
    PythonToolTest,
    PythonToolTestRun,
    PythonToolTests,
)
from capabilities.catalogue.python_tools.helper_modules.api import (
    ModuleCheck,
    ModuleDetail,
    ModuleList,
    ModuleRetire,
    ModuleUses,
    ModuleVersionDecide,
    ModuleVersionDetail,
    ModuleVersionDifference,
    ModuleVersionRollback,
    ModuleVersions,
)
from capabilities.catalogue.servers.api import ServerAccept, ServerDetail, ServerList, ServerRead
from capabilities.catalogue.tools.api import ToolBulk, ToolDetail, ToolList, ToolRefusalDetail, ToolRefusals
from capabilities.catalogue.versions.api import (
    ToolQuarantine,
    ToolVersionDecide,
    ToolVersionDetail,
    ToolVersionDifference,
    ToolVersionRollback,
    ToolVersions,
)
from capabilities.language_models.prices.api import ModelPriceDetail, ModelPriceList, PriceList
from capabilities.language_models.providers.api import (
    LanguageModelDetail,
    LanguageModelList,
    LessonDetail,
    ProviderDetail,
    ProviderList,
)
from capabilities.running.credentials.api import (
    AccountDetail,
    AccountList,
    CredentialAccount,
    CredentialAccounts,
    CredentialDetail,
    CredentialList,
    CredentialSecret,
)
from capabilities.running.services.api import ServiceDetail, ServiceList

urlpatterns: list[URLPattern] = [
    path("categories", CategoryList.as_view(), name="api-categories"),
    path("categories/<str:name>", CategoryDetail.as_view(), name="api-category"),
    path("tools", ToolList.as_view(), name="api-tools"),
    path("tools/bulk", ToolBulk.as_view(), name="api-tools-bulk"),
    path("tools/<str:name>", ToolDetail.as_view(), name="api-tool"),
    path("tools/<str:name>/refusals", ToolRefusals.as_view(), name="api-tool-refusals"),
    path("tools/<str:name>/refusals/<uuid:refusal_id>", ToolRefusalDetail.as_view(), name="api-tool-refusal"),
    path("tools/<str:name>/quarantine", ToolQuarantine.as_view(), name="api-tool-quarantine"),
    path("tools/<str:name>/versions", ToolVersions.as_view(), name="api-tool-versions"),
    path("tools/<str:name>/versions/<int:number>", ToolVersionDetail.as_view(), name="api-tool-version"),
    path(
        "tools/<str:name>/versions/<int:number>/compare/<int:other>",
        ToolVersionDifference.as_view(),
        name="api-tool-version-difference",
    ),
    path("tools/<str:name>/versions/<int:number>/decide", ToolVersionDecide.as_view(), name="api-tool-version-decide"),
    path(
        "tools/<str:name>/versions/<int:number>/rollback",
        ToolVersionRollback.as_view(),
        name="api-tool-version-rollback",
    ),
    path("http-tools", HttpToolList.as_view(), name="api-http-tools"),
    path("http-tool-preview", HttpToolPreview.as_view(), name="api-http-tool-preview"),
    path("http-tools/<str:name>", HttpToolDetail.as_view(), name="api-http-tool"),
    path("python-tools", PythonToolList.as_view(), name="api-python-tools"),
    path("python-tool-checks", PythonToolCheck.as_view(), name="api-python-tool-checks"),
    path("python-tools/<str:name>", PythonToolDetail.as_view(), name="api-python-tool"),
    path("python-tools/<str:name>/tests", PythonToolTests.as_view(), name="api-python-tool-tests"),
    path("python-tools/<str:name>/tests/run", PythonToolTestRun.as_view(), name="api-python-tool-tests-run"),
    path("python-tools/<str:name>/tests/<uuid:test_id>", PythonToolTest.as_view(), name="api-python-tool-test"),
    path("agents-make-tools", AgentsMakeTools.as_view(), name="api-agents-make-tools"),
    path("python-modules", ModuleList.as_view(), name="api-python-modules"),
    path("python-module-checks", ModuleCheck.as_view(), name="api-python-module-checks"),
    path("python-modules/<str:name>", ModuleDetail.as_view(), name="api-python-module"),
    path("python-modules/<str:name>/retire", ModuleRetire.as_view(), name="api-python-module-retire"),
    path("python-modules/<str:name>/uses", ModuleUses.as_view(), name="api-python-module-uses"),
    path("python-modules/<str:name>/versions", ModuleVersions.as_view(), name="api-python-module-versions"),
    path(
        "python-modules/<str:name>/versions/<int:number>",
        ModuleVersionDetail.as_view(),
        name="api-python-module-version",
    ),
    path(
        "python-modules/<str:name>/versions/<int:number>/compare/<int:other>",
        ModuleVersionDifference.as_view(),
        name="api-python-module-difference",
    ),
    path(
        "python-modules/<str:name>/versions/<int:number>/decide",
        ModuleVersionDecide.as_view(),
        name="api-python-module-decide",
    ),
    path(
        "python-modules/<str:name>/versions/<int:number>/rollback",
        ModuleVersionRollback.as_view(),
        name="api-python-module-rollback",
    ),
    path("approval-rules", RuleList.as_view(), name="api-approval-rules"),
    path("approval-rules/<uuid:rule_id>", RuleDetail.as_view(), name="api-approval-rule"),
    path("imports", ImportList.as_view(), name="api-imports"),
    path("imports/<uuid:import_id>", ImportDetail.as_view(), name="api-import"),
    path("imports/<uuid:import_id>/tools", ImportedToolList.as_view(), name="api-import-tools"),
    path("imports/<uuid:import_id>/tools/<uuid:imported_id>", ImportedToolDetail.as_view(), name="api-import-tool"),
    path("imports/<uuid:import_id>/accept", ImportAccept.as_view(), name="api-import-accept"),
    path("imports/<uuid:import_id>/dismiss", ImportDismiss.as_view(), name="api-import-dismiss"),
    path("services", ServiceList.as_view(), name="api-services"),
    path("services/<str:service>", ServiceDetail.as_view(), name="api-service"),
    path("mcp-servers", ServerList.as_view(), name="api-mcp-servers"),
    path("mcp-servers/<str:name>/read", ServerRead.as_view(), name="api-mcp-server-read"),
    path("mcp-servers/<str:name>/accept", ServerAccept.as_view(), name="api-mcp-server-accept"),
    path("mcp-servers/<str:name>", ServerDetail.as_view(), name="api-mcp-server"),
    path("toolkits", ToolkitList.as_view(), name="api-toolkits"),
    path("toolkits/<str:name>/export", ToolkitExport.as_view(), name="api-toolkit-export"),
    path("imports/<uuid:import_id>/toolkit", ImportToolkit.as_view(), name="api-import-toolkit"),
    path("publications", PublicationList.as_view(), name="api-publications"),
    path("publications/<uuid:publication_id>", PublicationDetail.as_view(), name="api-publication"),
    path("publications/<uuid:publication_id>/import", PublicationImport.as_view(), name="api-publication-import"),
    path("toolkits/<str:name>", ToolkitDetail.as_view(), name="api-toolkit"),
    path("policies", PolicyList.as_view(), name="api-policies"),
    path("policies/organisation", OrganisationPolicy.as_view(), name="api-organisation-policy"),
    path("policies/providers/<str:slug>", ProviderPolicy.as_view(), name="api-provider-policy"),
    path("policy-profiles", ProfileList.as_view(), name="api-policy-profiles"),
    path("policy-profiles/<str:name>", ProfileDetail.as_view(), name="api-policy-profile"),
    path("agents", AgentList.as_view(), name="api-agents"),
    path("agents/<str:slug>", AgentDetail.as_view(), name="api-agent"),
    path("credentials", CredentialList.as_view(), name="api-credentials"),
    path("credentials/<slug:credential>", CredentialDetail.as_view(), name="api-credential"),
    path("credentials/<slug:credential>/secret", CredentialSecret.as_view(), name="api-credential-secret"),
    path("credentials/<slug:credential>/accounts", CredentialAccounts.as_view(), name="api-credential-accounts"),
    path(
        "credentials/<slug:credential>/accounts/<uuid:account_id>",
        CredentialAccount.as_view(),
        name="api-credential-account",
    ),
    path("accounts", AccountList.as_view(), name="api-accounts"),
    path("accounts/<slug:credential>", AccountDetail.as_view(), name="api-account"),
    path("hooks", HookList.as_view(), name="api-hooks"),
    path("hooks/<uuid:hook_id>", HookDetail.as_view(), name="api-hook"),
    path("providers", ProviderList.as_view(), name="api-providers"),
    path("providers/<str:slug>", ProviderDetail.as_view(), name="api-provider"),
    path("models", LanguageModelList.as_view(), name="api-models"),
    path("models/<uuid:model_id>/lessons/<str:key>", LessonDetail.as_view(), name="api-model-lesson"),
    path("models/<uuid:model_id>/prices", ModelPriceList.as_view(), name="api-model-prices"),
    path("models/<uuid:model_id>/prices/<uuid:price_id>", ModelPriceDetail.as_view(), name="api-model-price"),
    path("tool-files", ToolFileList.as_view(), name="api-tool-files"),
    path("prices", PriceList.as_view(), name="api-prices"),
    path("models/<uuid:model_id>", LanguageModelDetail.as_view(), name="api-model"),
    path("runtime-config", RuntimeConfigList.as_view(), name="api-runtime-config"),
    path("runtime-config/organisation", OrganisationConfig.as_view(), name="api-runtime-config-organisation"),
    path("runtime-config/providers/<str:slug>", ProviderConfig.as_view(), name="api-runtime-config-provider"),
    path("runtime-config/agents/<str:slug>", AgentConfig.as_view(), name="api-runtime-config-agent"),
    path("runtime-config/tools/<str:name>", ResolvedToolView.as_view(), name="api-runtime-config-tool"),
    path("roles", RoleList.as_view(), name="api-roles"),
    path("roles/<str:slug>", RoleDetail.as_view(), name="api-role"),
    path("members/<uuid:member_id>/roles", MemberRolesView.as_view(), name="api-member-roles"),
    path("grants", GrantList.as_view(), name="api-grants"),
    path("grants/<uuid:grant_id>", GrantDetail.as_view(), name="api-grant"),
    path("grant-requests", GrantRequestList.as_view(), name="api-grant-requests"),
    path("grant-requests/<uuid:own_request>", GrantRequestDetail.as_view(), name="api-grant-request"),
    path(
        "grant-requests/<uuid:own_request>/withdraw",
        GrantRequestWithdraw.as_view(),
        name="api-grant-request-withdraw",
    ),
    path("grant-requests/<uuid:request_id>/grant", GrantRequestGrant.as_view(), name="api-grant-request-grant"),
    path("grant-requests/<uuid:request_id>/refuse", GrantRequestRefuse.as_view(), name="api-grant-request-refuse"),
    path("registry", RegistryView.as_view(), name="api-registry"),
]
