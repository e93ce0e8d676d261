from django.apps import AppConfig


class CapabilitiesConfig(AppConfig):
    name = "capabilities"

    def ready(self) -> None:
        from capabilities import wiring  # noqa: PLC0415 -- app ready
        from capabilities.running.egress.guard import warn_of_open_hosts  # noqa: PLC0415 -- app ready

        warn_of_open_hosts()
        wiring.provide_all()
