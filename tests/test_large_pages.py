"""Pages and lists of a large catalogue are as long as those of a middling one: what they hold is bounded."""

from __future__ import annotations

import pytest
from django.test import Client

from benchmarks import pages
from benchmarks.large_organisation import Filled, Size, fill, filled

pytestmark = [pytest.mark.long, pytest.mark.django_db, pytest.mark.timeout(300)]

MIDDLING = Size(
    tools=400, categories=40, toolkits=30, roles=8, members=10, agents=3, sessions=2, turns=3, records=3, hours=200
)
LARGE = Size(
    tools=2_400, categories=240, toolkits=180, roles=48, members=10, agents=3, sessions=2, turns=3, records=3, hours=200
)
#: What grew with the catalogue before: by tools, by categories, or by toolkits times tools.
HEAVY = (
    "session_detail",
    "session_toolkits",
    "api-session-toolkits",
    "api-toolkits?limit=200",
    "api-roles?limit=200",
    "role_matrix",
    "role_matrix?q=tool_00",
    "role_create",
    "role_detail",
    "tool_list",
    "toolkit_list",
    "agent_detail",
    "category_list",
    "api-tools?limit=200",
    "api-categories?limit=200",
)
#: The list of toolkits that stands on its page whole, a short line of each; and those over REST of which the smaller
#: organisation has no full page.
WHOLE = {
    "toolkit_list",
    "agent_detail",
    "api-categories?limit=200",
    "api-toolkits?limit=200",
    "api-roles?limit=200",
}


def sizes_of(of: Filled) -> dict[str, int]:
    browser, rest = Client(), Client(headers={"Authorization": f"Bearer {of.token}"})
    browser.force_login(of.member.user)
    found = {}
    for name, path in pages.addresses(of):
        if name in HEAVY:
            response = (rest if path.startswith("/api/") else browser).get(path)
            assert response.status_code == 200, (name, response.status_code)
            found[name] = len(response.content)
    return found


def test_six_times_the_catalogue_makes_no_page_longer_than_200_kb() -> None:
    fill(MIDDLING, "middling")
    fill(LARGE, "large")
    middling, large = sizes_of(filled("middling")), sizes_of(filled("large"))

    assert set(middling) == set(large) == set(HEAVY)
    assert {name: size for name, size in large.items() if size > pages.MOST_BYTES} == {}
    grown = {name: (middling[name], size) for name, size in large.items() if size > 3 * middling[name]}
    assert set(grown) <= WHOLE, grown
