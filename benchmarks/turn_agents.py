"""What the service is given before it is measured: agents with so many tools, and members with tokens.

The only file of the turn benchmarks that imports the product; `python benchmarks/turn_agents.py` runs in the
environment of the service under test, once `up` has made the database and its first organisation.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

django.setup()

from benchmarks.many_tools import TOOL_NAMES  # noqa: E402 -- app ready
from capabilities.agents.agents.writes import AgentContent, create_agent  # noqa: E402
from capabilities.models import LanguageModel, Provider  # noqa: E402
from capabilities.starter import FirstAdmin, create_organisation  # noqa: E402
from toolhub.tenants.access import issue_token  # noqa: E402
from toolhub.tenants.models import Membership  # noqa: E402
from toolhub.tenants.rows.scope import organisation_scope, system_scope  # noqa: E402


def add_agents(member: Membership, address: str, counts: list[int]) -> None:
    """An agent `tools-N` for each count, whose model is at this address. The caller's scope is the member's."""
    key = {"organisation_id": member.organisation_id}
    provider = Provider.objects.create(slug="instant", name="Instant", base_url=address, **key)
    model = LanguageModel.objects.create(provider=provider, name="scripted", **key)
    for count in counts:
        content = AgentContent(
            f"tools-{count}",
            f"{count} tools",
            model,
            prompt="You keep the accounts.",
            starts_with_core=False,
            tools=TOOL_NAMES[:count],
        )
        create_agent(content, actor=member)


def main() -> None:
    """Prints the tokens of so many organisations' members, as JSON: the first is the one that is there already."""
    address, organisations, *counts = sys.argv[1], *(int(word) for word in sys.argv[2:])
    tokens = []
    for number in range(organisations):
        with system_scope():
            member = Membership.objects.order_by("pk").get() if number == 0 else new_member(f"number-{number}")
        with organisation_scope(member.organisation_id):
            add_agents(member, address, counts)
            tokens.append(issue_token(member, "Benchmark", actor=None)[1])
    print(json.dumps(tokens))


def new_member(slug: str) -> Membership:
    return create_organisation(slug, slug, FirstAdmin(f"{slug}@example.com", "not-used-by-anybody"))


if __name__ == "__main__":
    main()
