"""Makes one more organisation, with everything it needs for its first turn, and its first administrator."""

from __future__ import annotations

import secrets
from argparse import ArgumentParser, BooleanOptionalAction
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.core.validators import validate_email
from django.utils.text import slugify

from capabilities.starter import FirstAdmin, create_organisation
from toolhub.tenants.models import Organisation, User, slug_validator


class Command(BaseCommand):
    help = "Make an organisation with its first administrator. A new user's password is printed once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="As people read it.")
        parser.add_argument("--slug", help="For addresses and the API; made from the name unless given.")
        parser.add_argument("--admin", required=True, metavar="EMAIL", help="Its administrator, known here or new.")
        parser.add_argument(
            "--assistant",
            action=BooleanOptionalAction,
            help="Whether it begins with the personal assistant; by the setting TOOLHUB_ASSISTANT unless given.",
        )

    def handle(
        self, *args: Any, name: str, slug: str | None, admin: str, assistant: bool | None, **options: Any
    ) -> None:
        name, slug, email = name.strip(), slug or slugify(name), admin.strip().lower()
        if not name or len(name) > 100:
            raise CommandError("The name must have 1 to 100 characters.")
        for value, check in ((slug, slug_validator), (email, validate_email)):
            try:
                check(value)
            except ValidationError as error:
                raise CommandError(f"{value}: {error.messages[0]}") from error
        if Organisation.objects.filter(slug=slug).exists():
            raise CommandError(f"There is an organisation {slug} already.")
        is_known = User.objects.filter(email=email).exists()
        password = secrets.token_urlsafe(12)
        member = create_organisation(name, slug, FirstAdmin(email, password), has_assistant=assistant)
        self.stdout.write(f"{name} is made, at /o/{slug}/. Its administrator is {email}.")
        begins = "with" if member.organisation.has_assistant else "without"
        self.stdout.write(f"It begins {begins} the personal assistant: switch it on its page Organisation.")
        if not is_known:
            self.stdout.write(f"Password, shown only now: {password}")
