from django.apps import AppConfig


class CapabilitiesConfig(AppConfig):
    name = "capabilities"

    def ready(self) -> None:
        from capabilities.registry import registry  # noqa: PLC0415 -- app ready

        registry.discover()
