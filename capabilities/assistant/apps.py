from django.apps import AppConfig


class AssistantConfig(AppConfig):
    """The personal assistant: built-in tools, what they keep for a member, and its pages."""

    name = "capabilities.assistant"
    label = "assistant"
