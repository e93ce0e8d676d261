"""The REST routes of budgets."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from sessions.models import Budget
from tests.cast import make_agent, make_role, make_session
from tests.rest import Rest
from tests.sessions.budgets.test_views import a_budget, a_period
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import system_scope

pytestmark = pytest.mark.django_db


@pytest.fixture
def rest(alice: Membership) -> Rest:
    return Rest(alice)


def test_a_budget_in_dollars_goes_round_exactly(rest: Rest) -> None:
    made = rest.post("budgets", {"name": "Month", "measure": "money", "window": "month", "limit": "12.345678901"})

    body = made.json
    reset = body["now"].pop("resets_at")
    assert (made.status, bool(reset)) == (201, True)
    assert {name: value for name, value in body.items() if name not in ("id", "created_at")} == {
        "warnings": [],
        "name": "Month",
        "scope": "organisation",
        "role": None,
        "is_per_member": False,
        "member": None,
        "agent": None,
        "session": None,
        "measure": "money",
        "window": "month",
        "limit": "12.345678901",
        "is_hard": True,
        "warn_at": [80, 95],
        "is_enabled": True,
        "now": {
            "limit": "12.345678901",
            "added": "0.00",
            "spent": "0.00",
            "reserved": "0.00",
            "left": "12.345678901",
        },
    }
    assert rest.get(f"budgets/{body['id']}").json["limit"] == "12.345678901"
    assert [each["name"] for each in rest.get("budgets").json["results"]] == ["Month"]


def test_a_target_is_named_by_its_scope(rest: Rest, bob: Membership) -> None:
    agent, session = make_agent(bob.organisation), make_session(bob)
    role = make_role(bob.organisation, bob)
    wanted: list[dict[str, Any]] = [
        {"scope": "role", "role": role.slug, "is_per_member": True},
        {"scope": "member", "member": str(bob.public_id)},
        {"scope": "agent", "agent": agent.slug},
        {"scope": "session", "session": str(session.pk)},
    ]

    for number, each in enumerate(wanted):
        made = rest.post("budgets", {"name": f"b{number}", "limit": "10", **each})
        assert made.status == 201, made.text
        assert {name: made.json[name] for name in each} == each


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"limit": "1.5"}, (400, "invalid", "limit")),
        ({"limit": "0.0000000001", "measure": "money"}, (400, "invalid", "limit")),
        ({"limit": 5}, (400, "invalid", "limit")),
        ({"scope": "role"}, (400, "required", "role")),
        ({"scope": "role", "role": "theirs"}, (400, "unknown", "role")),
        ({"scope": "member", "member": str(uuid4())}, (400, "unknown", "member")),
        ({"scope": "agent", "role": "all"}, (400, "invalid", "role")),
        ({"member": str(uuid4())}, (400, "invalid", "member")),
        ({"warn_at": [0]}, (400, "invalid", "warn_at.0")),
        ({"warn_at": [5, 5]}, (400, "invalid", "warn_at")),
        ({"price": "5"}, (400, "unknown_field", "price")),
    ],
)
def test_a_refusal_names_the_invalid_field(rest: Rest, fields: dict[str, Any], error: tuple[int, str, str]) -> None:
    reply = rest.post("budgets", {"name": "n", "limit": "10", **fields})

    status, code, field = reply.error
    assert (status, field) == (error[0], error[2])
    assert code == error[1] or error[2] == "warn_at.0"
    with system_scope():
        assert not Budget.objects.exists()


def test_another_organisations_member_is_a_missing_one(rest: Rest, charlie: Membership) -> None:
    missing = rest.post("budgets", {"name": "n", "limit": "1", "scope": "member", "member": str(uuid4())})
    theirs = rest.post("budgets", {"name": "n", "limit": "1", "scope": "member", "member": str(charlie.public_id)})

    assert missing.error == theirs.error == (400, "unknown", "member")


def test_a_budget_is_changed_and_what_it_counts_is_not(rest: Rest, alice: Membership) -> None:
    budget = a_budget(alice)

    changed = rest.patch(f"budgets/{budget.public_id}", {"limit": "2000", "is_hard": False})
    fixed = rest.patch(f"budgets/{budget.public_id}", {"measure": "money"})

    assert (changed.json["limit"], changed.json["is_hard"], changed.json["warn_at"]) == ("2000", False, [80, 95])
    assert fixed.error == (400, "unknown_field", "measure")
    assert rest.delete(f"budgets/{budget.public_id}").status == 204
    assert rest.get(f"budgets/{budget.public_id}").status == 404


def test_windows_are_listed_reset_and_topped_up(rest: Rest, alice: Membership, bob: Membership) -> None:
    budget = a_budget(alice, scope="member")
    period = a_period(budget, key=f"member:{bob.pk}", spent=900, reserved=50)
    address = f"budgets/{budget.public_id}/periods"

    (row,) = rest.get(address).json["results"]
    more = rest.post(f"{address}/{period.public_id}/top-up", {"amount": "500"}).json
    reset = rest.post(f"{address}/{period.public_id}/reset").json

    assert (row["kind"], row["owner"], row["left"], row["is_running"]) == ("member", str(bob.public_id), "50", True)
    assert (more["added"], more["left"]) == ("500", "550")
    assert (reset["spent"], reset["spent_before_reset"], reset["left"]) == ("0", "900", "1450")
    assert rest.post(f"{address}/{period.public_id}/top-up", {"amount": "-5"}).error == (400, "invalid", "amount")
    assert str(bob.pk) not in (row["owner"], row["kind"])


def test_a_member_reads_what_binds_them_and_nothing_more(alice: Membership, bob: Membership) -> None:
    budget = a_budget(alice, scope="member")
    period = a_period(budget, key=f"member:{bob.pk}", spent=900)
    a_period(budget, key=f"member:{alice.pk}", spent=5)
    rest = Rest(bob)

    mine = rest.get("budgets/mine").json["results"]

    assert [(each["name"], each["now"]["left"]) for each in mine] == [("Daily", "100")]
    assert rest.get("budget-rules").json == {
        "organisation": "Acme",
        "time_zone": "UTC",
        "counts_unpriced_as_free": False,
    }
    refused = [
        rest.get("budgets"),
        rest.post("budgets", {"name": "n", "limit": "1"}),
        rest.get(f"budgets/{budget.public_id}"),
        rest.post(f"budgets/{budget.public_id}/periods/{period.public_id}/reset"),
        rest.patch("budget-rules", {"time_zone": "Asia/Tokyo"}),
    ]
    assert {each.error[:2] for each in refused} == {(403, "forbidden")}


def test_the_rules_of_all_budgets_are_changed(rest: Rest) -> None:
    changed = rest.patch("budget-rules", {"time_zone": "Asia/Tokyo"})
    wrong = rest.patch("budget-rules", {"time_zone": "Tokyo"})

    assert (changed.json["time_zone"], changed.json["counts_unpriced_as_free"]) == ("Asia/Tokyo", False)
    assert wrong.error == (400, "unknown", "time_zone")
