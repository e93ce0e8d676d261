"""Times as pages show them: in the organisation's zone and language, in one place."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse

from tests.cast import make_token
from tests.paths import ROOT
from tests.test_tenancy_routes import ADDRESSES, GUARDED, ROUTES, TwoOrganisations, ask, filled, world  # noqa: F401
from toolhub.tenants import times
from toolhub.tenants.models import Membership, Organisation

MOMENT = datetime(2026, 3, 7, 15, 4, 9, tzinfo=UTC)

#: A date or time written by other means than `times`: a format of `strftime`, or a filter of Django's.
BY_HAND = re.compile(r"strftime\(|:%-?[aAbBdHIpyY]|\.(?:c|iso)?format_date|date_format\(")
FILTERS = re.compile(r"\|(?:date|time|timezone|localtime|utc|naturalday|naturaltime|timesince|timeuntil)\b(?!:'c')")
#: Where it may be: no page shows it, or not as the organisation's time.
ELSEWHERE = {
    "toolhub/tenants/times.py": "the one place",
    "capabilities/assistant/builtin/_lib/sigv4.py": "a protocol",
    "capabilities/assistant/builtin/calendar.py": "what a tool returns",
    "capabilities/assistant/builtin/utility.py": "what a tool returns",
    "capabilities/models/prices.py": "the name of a row in the audit",
    "sessions/models/budgets.py": "the name of a row in the audit",
    "capabilities/language_models/providers/prices.py": "a source on record, in UTC",
    "capabilities/running/credentials/signing.py": "a note that is stored, in UTC",
    "capabilities/running/sandbox/monty/gaps.py": "advice to authors of Python tools",
    "toolhub/embedded/offline_model/arguments.py": "arguments of a call, as a model writes them",
    "sessions/doors/chats/exports.py": "a file, in UTC, which it names",
    "sessions/loop/calls/approvals.py": "what a model reads, in UTC",
    "sessions/turns/budget_states.py": "a refusal, which names its zone; REST has it too",
}


@pytest.mark.parametrize(
    ("language", "written"),
    [
        ("en-gb", ("7 Mar 2026", "7 Mar", "Saturday, 7 March 2026", "March 2026", "15:04")),
        ("en-us", ("Mar 7, 2026", "Mar 7", "Saturday, March 7, 2026", "March 2026", "3:04 PM")),
        ("de", ("7. März 2026", "7. März", "Samstag, 7. März 2026", "März 2026", "15:04")),
        ("es", ("7 marzo 2026", "7 marzo", "sábado, 7 de marzo de 2026", "marzo de 2026", "15:04")),
        ("iso", ("2026-03-07", "03-07", "2026-03-07", "2026-03", "15:04")),
    ],
)
def test_each_language_has_its_order_and_its_names(language: str, written: tuple[str, ...]) -> None:
    with times.written_in(language):
        found = tuple(show(MOMENT) for show in (times.day, times.short_day, times.long_day, times.month, times.clock))
        assert times.day(date(2026, 3, 7)) == written[0]

    assert found == written
    assert times.exact(MOMENT) == "7 Mar 2026, 15:04:09 UTC"


@pytest.mark.parametrize("language", [code for code, _ in times.LANGUAGES])
def test_every_language_writes_every_month(language: str) -> None:
    with times.written_in(language):
        months = {times.day(date(2026, number, 1)) for number in range(1, 13)}

    assert len(months) == 12


def test_a_day_is_that_of_the_zone() -> None:
    organisation = Organisation(time_zone="Pacific/Kiritimati", date_language="iso")

    with times.shown_as(organisation):
        assert times.day_and_time(MOMENT) == "2026-03-08, 05:04"
        assert times.weekday_and_time(MOMENT, ZoneInfo("Asia/Tokyo")) == "Sun 03-08, 00:04"
    with times.shown_as(Organisation(time_zone="Mars/Olympus")):
        assert times.day_and_time(MOMENT) == "7 Mar 2026, 15:04"


@pytest.mark.django_db
def test_pages_are_in_the_zone_and_rest_in_utc(client: Client, alice: Membership) -> None:
    Organisation.objects.filter(pk=alice.organisation_id).update(time_zone="Asia/Tokyo", date_language="de")
    token = make_token(alice)
    client.force_login(alice.user)

    page = client.get(reverse("member_detail", args=["acme", alice.public_id])).content.decode()
    rest = client.get("/api/v1/members", headers={"Authorization": f"Bearer {token}"}).json()

    joined = alice.created_at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert f'title="{joined.day}. ' in page
    assert f"{joined:%H:%M:%S} JST" in page
    assert rest["results"][0]["created_at"].endswith("Z")


@pytest.mark.exhaustive
@pytest.mark.django_db
def test_every_time_on_every_page_is_in_the_zone(world: TwoOrganisations) -> None:  # noqa: F811
    organisation = world.alice.organisation
    Organisation.objects.filter(pk=organisation.pk).update(time_zone="Pacific/Kiritimati")
    found, wrong = 0, []

    for name in GUARDED:
        for way in (way for way in ROUTES[name].asks if way.method == "GET" and not ADDRESSES[name].is_api):
            answer = ask(world.client_of(world.alice, ADDRESSES[name]), name, way, world.acme)
            moments = re.findall(r'<time[^>]* datetime="([^"]+)"', answer.body)
            found += len(moments)
            wrong += [(name, each) for each in moments if not each.endswith("+14:00")]

    assert wrong == []
    assert found > 50


def test_no_page_writes_a_time_by_hand() -> None:
    sources = [file for app in ("toolhub", "capabilities", "sessions") for file in (ROOT / app).rglob("*.py")]
    found = {path(file) for file in sources if BY_HAND.search(file.read_text()) and "migrations" not in file.parts}
    pages = {path(file) for file in (ROOT / "templates").rglob("*.html") if FILTERS.search(file.read_text())}

    assert found == set(ELSEWHERE)
    assert pages == set()


def path(file: Path) -> str:
    return str(file.relative_to(ROOT))
