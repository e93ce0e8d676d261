from __future__ import annotations

import os

from django.apps import AppConfig


class ManyTools(AppConfig):
    name = "benchmarks.many_tools"

    def ready(self) -> None:
        if folder := os.environ.get("BENCHMARK_TALLY_FOLDER"):
            from benchmarks.many_tools.tally import count_into  # noqa: PLC0415 -- app ready

            count_into(folder)
