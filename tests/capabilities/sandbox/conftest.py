"""What the tests of this room share: full Python, where this machine can keep it apart."""

from __future__ import annotations

from typing import Any

import pytest

from capabilities.sandbox import isolation


@pytest.fixture
def full_python(settings: Any) -> None:
    """Full Python is allowed; where the machine cannot isolate it, the test is skipped with the reason."""
    settings.TOOLHUB_FULL_PYTHON = True
    found = isolation()
    if not found.full:
        pytest.skip(found.full_reason)


@pytest.fixture(params=["monty", "full"])
def runtime(request: pytest.FixtureRequest) -> str:
    """Each runtime in turn."""
    if request.param == "full":
        request.getfixturevalue("full_python")
    return str(request.param)
