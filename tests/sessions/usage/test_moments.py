"""Moments that a query of usage may name."""

from __future__ import annotations

import pytest

from tests.rest import Rest
from toolhub.tenants.models import Membership

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("name", ["from", "to"])
@pytest.mark.parametrize(
    "moment", ["0001-01-01", "0001-01-02T00:00:00+14:00", "9999-12-31", "9999-12-31T23:59:59-12:00", "NaN", "\x00"]
)
def test_a_moment_at_the_end_of_the_calendar_is_refused(alice: Membership, name: str, moment: str) -> None:
    assert Rest(alice).get("usage", **{name: moment}).error == (400, "invalid", name)
