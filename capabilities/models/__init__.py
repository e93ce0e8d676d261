"""What tools exist, who may use them, and what the built-in ones keep. One module a noun."""

from capabilities.models.agents import Agent, AgentTool, LanguageModel, Provider
from capabilities.models.catalogue import Category, Tool, ToolKind, ToolVersion
from capabilities.models.notebook import Memory, Scratchpad, Task
from capabilities.models.permissions import Effect, Grant, Role, RoleMembership, RoleMode, RoleRule
from capabilities.models.services import ServiceSetting

__all__ = [
    "Agent",
    "AgentTool",
    "Category",
    "Effect",
    "Grant",
    "LanguageModel",
    "Memory",
    "Provider",
    "Role",
    "RoleMembership",
    "RoleMode",
    "RoleRule",
    "Scratchpad",
    "ServiceSetting",
    "Task",
    "Tool",
    "ToolKind",
    "ToolVersion",
]
