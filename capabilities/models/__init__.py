"""What tools exist, who may use them, and what the built-in ones keep. One module a noun."""

from capabilities.models.agents import Agent, AgentTool, LanguageModel, Provider
from capabilities.models.calendar import CalendarEvent, CalendarFeed
from capabilities.models.catalogue import Category, Tool, ToolKind, ToolVersion
from capabilities.models.household import FoodEntry, GroceryItem, ListItem, NamedList, Place, Recipe
from capabilities.models.journals import AgentNote, Journal, JournalEntry
from capabilities.models.knowledge import Entity, Relation, Series, SeriesPoint
from capabilities.models.notebook import Memory, Scratchpad, Task
from capabilities.models.people import Message, Person
from capabilities.models.permissions import Effect, Grant, Role, RoleMembership, RoleMode, RoleRule
from capabilities.models.services import ServiceSetting

__all__ = [
    "Agent",
    "AgentNote",
    "AgentTool",
    "CalendarEvent",
    "CalendarFeed",
    "Category",
    "Effect",
    "Entity",
    "FoodEntry",
    "Grant",
    "GroceryItem",
    "Journal",
    "JournalEntry",
    "LanguageModel",
    "ListItem",
    "Memory",
    "Message",
    "NamedList",
    "Person",
    "Place",
    "Provider",
    "Recipe",
    "Relation",
    "Role",
    "RoleMembership",
    "RoleMode",
    "RoleRule",
    "Scratchpad",
    "Series",
    "SeriesPoint",
    "ServiceSetting",
    "Task",
    "Tool",
    "ToolKind",
    "ToolVersion",
]
