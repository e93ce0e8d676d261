"""Rows with honest defaults. The cast is always the same: Alice is admin of Acme, Bob a member of Acme, and Charlie,
admin of Globex, must see nothing of Acme."""

from __future__ import annotations

from typing import Any

from toolhub.tenants.models import Access, Membership, Organisation, User
from toolhub.tenants.scope import system_scope

PASSWORD = "correct-horse-battery"


def make_organisation(slug: str, **fields: Any) -> Organisation:
    return Organisation.objects.create(slug=slug, name=fields.pop("name", slug.title()), **fields)


def make_member(organisation: Organisation, name: str, access: Access = Access.MEMBER) -> Membership:
    with system_scope():
        user, _ = User.objects.get_or_create(email=f"{name}@example.com", defaults={"first_name": name.title()})
        user.set_password(PASSWORD)
        user.save()
        return Membership.objects.create(organisation=organisation, user=user, access=access)
