"""Hands an account back to the person whose address it has: somebody else may have made it, or got into it."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from toolhub.tenants.access import memberships_of_user
from toolhub.tenants.identity.account import end_calendar_address, hand_back
from toolhub.tenants.models import User
from toolhub.tenants.people.writes import MemberRefused
from toolhub.tenants.rows.scope import organisation_scope


class Command(BaseCommand):
    help = (
        "Give an account a new password, printed once, and end everything else that opens it: logins, passkeys, second "
        "factors, API tokens, calendar addresses, the links that it made. Say for each of its organisations whether it "
        "stays there. Make sure first that you talk to the person whose address it is."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("email", help="Address of the account.")
        parser.add_argument("--keep", action="append", default=[], metavar="SLUG", help="An organisation to stay in.")
        parser.add_argument("--leave", action="append", default=[], metavar="SLUG", help="An organisation to leave.")

    def handle(self, *args: Any, email: str, keep: list[str], leave: list[str], **options: Any) -> None:
        user = User.objects.filter(email__iexact=email.strip()).first()
        if user is None:
            raise CommandError(f"There is no account {email.strip()}.")
        try:
            with transaction.atomic():
                _check_decided(user, keep, leave)
                password, kept = hand_back(user, keep=keep)
                for member in kept:
                    with organisation_scope(member.organisation_id):
                        end_calendar_address(member.pk)
        except MemberRefused as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{user.email} is handed back. Everything that opened it has ended.")
        self.stdout.write(f"Password, shown only now: {password}")


def _check_decided(user: User, keep: list[str], leave: list[str]) -> None:
    """Raise CommandError unless each organisation of the user is named once, and no other is."""
    current = {each.organisation.slug: each for each in memberships_of_user(user)}
    open_ones = [f"{slug} ({each.access})" for slug, each in current.items() if (slug in keep) == (slug in leave)]
    if open_ones:
        raise CommandError(
            f"Say --keep SLUG or --leave SLUG for each organisation of the account: {', '.join(open_ones)}."
        )
    unknown = sorted({*keep, *leave} - set(current))
    if unknown:
        raise CommandError(f"The account does not belong to {', '.join(unknown)}.")
