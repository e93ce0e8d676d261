"""What tools exist, who may use them, and what the built-in ones keep. One module a noun."""

from capabilities.models.agents import (
    AUTO,
    DIALECT_SETTINGS,
    Agent,
    AgentScope,
    AgentTool,
    ClientApprovals,
    Dialect,
    LanguageModel,
    LoadingMode,
    Provider,
    RoutingMode,
)
from capabilities.models.approvals import ApprovalRule, AskWhen
from capabilities.models.calendar import CalendarEvent, CalendarFeed
from capabilities.models.catalogue import (
    MAX_QUARANTINE,
    RELEASED,
    Category,
    Tool,
    ToolKind,
    ToolVersion,
    VersionStatus,
    kept_back,
)
from capabilities.models.credentials import (
    CredentialKind,
    CredentialScope,
    OAuthSignIn,
    SecretStatus,
    StoredCredential,
    StoredSecret,
    TokenRevocation,
)
from capabilities.models.helpers import HelperModule, HelperUse, HelperVersion, ToolTestCase
from capabilities.models.hooks import Hook
from capabilities.models.household import FoodEntry, GroceryItem, ListItem, NamedList, Place, Recipe
from capabilities.models.imports import (
    OPEN_IMPORTS,
    UNDECIDED,
    ImportedStatus,
    ImportedTool,
    ImportSource,
    ImportStatus,
    SyncedFile,
    ToolImport,
)
from capabilities.models.journals import AgentNote, Journal, JournalEntry
from capabilities.models.knowledge import Entity, Relation, Series, SeriesPoint
from capabilities.models.notebook import Memory, Scratchpad, Task
from capabilities.models.people import Message, Person
from capabilities.models.permissions import (
    Effect,
    Grant,
    GrantRequest,
    InvitationRole,
    RequestStatus,
    Role,
    RoleMembership,
    RoleMode,
    RoleRule,
)
from capabilities.models.policies import Policy, PolicyProfile
from capabilities.models.prices import ModelPrice
from capabilities.models.publications import Audience, Publication
from capabilities.models.push import PushKey, PushSubscription
from capabilities.models.runtime import RuntimeConfig, RuntimeLayer
from capabilities.models.servers import McpServer, Transport
from capabilities.models.services import OPEN_CONNECTION_TESTS, ConnectionStatus, ConnectionTest, ServiceSetting
from capabilities.models.toolkits import AgentToolkit, Toolkit, ToolkitCategory, ToolkitTool

__all__ = [
    "AUTO",
    "DIALECT_SETTINGS",
    "MAX_QUARANTINE",
    "OPEN_CONNECTION_TESTS",
    "OPEN_IMPORTS",
    "RELEASED",
    "UNDECIDED",
    "Agent",
    "AgentNote",
    "AgentScope",
    "AgentTool",
    "AgentToolkit",
    "ApprovalRule",
    "AskWhen",
    "Audience",
    "CalendarEvent",
    "CalendarFeed",
    "Category",
    "ClientApprovals",
    "ConnectionStatus",
    "ConnectionTest",
    "CredentialKind",
    "CredentialScope",
    "Dialect",
    "Effect",
    "Entity",
    "FoodEntry",
    "Grant",
    "GrantRequest",
    "GroceryItem",
    "HelperModule",
    "HelperUse",
    "HelperVersion",
    "Hook",
    "ImportSource",
    "ImportStatus",
    "ImportedStatus",
    "ImportedTool",
    "InvitationRole",
    "Journal",
    "JournalEntry",
    "LanguageModel",
    "ListItem",
    "LoadingMode",
    "McpServer",
    "Memory",
    "Message",
    "ModelPrice",
    "NamedList",
    "OAuthSignIn",
    "Person",
    "Place",
    "Policy",
    "PolicyProfile",
    "Provider",
    "Publication",
    "PushKey",
    "PushSubscription",
    "Recipe",
    "Relation",
    "RequestStatus",
    "Role",
    "RoleMembership",
    "RoleMode",
    "RoleRule",
    "RoutingMode",
    "RuntimeConfig",
    "RuntimeLayer",
    "Scratchpad",
    "SecretStatus",
    "Series",
    "SeriesPoint",
    "ServiceSetting",
    "StoredCredential",
    "StoredSecret",
    "SyncedFile",
    "Task",
    "TokenRevocation",
    "Tool",
    "ToolImport",
    "ToolKind",
    "ToolTestCase",
    "ToolVersion",
    "Toolkit",
    "ToolkitCategory",
    "ToolkitTool",
    "Transport",
    "VersionStatus",
    "kept_back",
]
