from django.apps import AppConfig


class AssistantConfig(AppConfig):
    """The personal assistant: built-in tools, what they keep for a member, and its pages."""

    name = "capabilities.assistant"
    label = "assistant"

    def ready(self) -> None:
        from capabilities.running.assistant import ASSISTANT  # noqa: PLC0415 -- app ready
        from capabilities.running.registry import registry  # noqa: PLC0415 -- app ready

        registry.discover("capabilities.assistant.builtin", ASSISTANT)
