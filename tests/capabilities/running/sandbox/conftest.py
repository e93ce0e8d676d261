"""What the tests of this room share: full Python, where this machine can keep it apart."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.running.sandbox import isolation
from tests.isolation import need_isolation


@pytest.fixture
def full_python(settings: Any) -> None:
    """Full Python is allowed; where the machine cannot isolate it, see `need_isolation`."""
    settings.TOOLHUB_FULL_PYTHON = True
    need_isolation(isolation().full_reason)


@pytest.fixture(params=["monty", "full"])
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime in turn."""
    if request.param == "full":
        request.getfixturevalue("full_python")
    return str(request.param)
