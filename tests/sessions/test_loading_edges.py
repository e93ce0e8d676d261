"""Loading where two things cross: agents that share, rights that went, workers that lost their turn."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db(transaction=True)
