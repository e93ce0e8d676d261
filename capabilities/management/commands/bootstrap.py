"""Makes the first organisation, and brings the built-in catalogue of every one up to this version's. Safe to repeat."""

from __future__ import annotations

import os
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from capabilities.catalogue.tools.install import install_builtin
from capabilities.language_models.providers.environment import agents_left_behind, back_to_offline_model
from capabilities.starter import FirstAdmin, add_new_starters, create_organisation, use_provider_of_environment
from toolhub.refusal import refuse
from toolhub.tenants.access import issue_token
from toolhub.tenants.models import Organisation, User
from toolhub.tenants.rows.scope import organisation_scope

FIRST_START = """
  toolhub is set up. Keep these, they are shown only now:

    sign in    {email}
    password   {password}
    API token  {token}
"""


LEFT_BEHIND = """
  {organisation}: {count} agent(s) still use the provider that an earlier start was given by its environment
  ({address}). This start was given none. To let them use the offline model again: the page Providers,
  or manage.py bootstrap --offline
"""


class Command(BaseCommand):
    help = "Make the first organisation with its administrator and API token, and update every built-in catalogue."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--offline",
            action="store_true",
            help="Let the agents that an earlier start moved to the provider of its environment use the offline model.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        for organisation in Organisation.objects.order_by("pk"):
            with organisation_scope(organisation):
                install_builtin(organisation)
                add_new_starters(organisation)
                use_provider_of_environment(organisation)
                self._print_left_behind(organisation, move=options["offline"])
        if not Organisation.objects.exists():
            self._make_first()
        self._apply_agents_file()

    def _make_first(self) -> None:
        email, password = settings.TOOLHUB_BOOTSTRAP_EMAIL.lower(), _password()
        admin = FirstAdmin(email, password)
        with transaction.atomic():
            membership = create_organisation("Acme", "acme", admin)
            with organisation_scope(membership.organisation):
                _, token = issue_token(membership, "First token", actor=None, secret=settings.TOOLHUB_BOOTSTRAP_TOKEN)
        self.stdout.write(FIRST_START.format(email=admin.email, password=password, token=token))

    def _apply_agents_file(self) -> None:
        """Apply the agents file of the settings. An error in it is printed, nothing of it is applied, and the service
        starts as it was."""
        if not settings.TOOLHUB_AGENTS_FILE:
            return
        slug, email = settings.TOOLHUB_AGENTS_FILE_ORGANISATION, settings.TOOLHUB_AGENTS_FILE_BY
        try:
            call_command("apply_agents", settings.TOOLHUB_AGENTS_FILE, organisation=slug, by=email, stdout=self.stdout)
        except CommandError as error:
            self.stderr.write(str(error))

    def _print_left_behind(self, organisation: Organisation, *, move: bool) -> None:
        if move:
            moved = back_to_offline_model(actor=None)
            self.stdout.write(f"  {organisation}: {len(moved)} agent(s) use the offline model again.")
        agents = agents_left_behind()
        if agents:
            address = agents[0].model.provider.base_url
            self.stdout.write(LEFT_BEHIND.format(organisation=organisation, count=len(agents), address=address))


def _password() -> str:
    """The first administrator's: a random one, unless said. One that members may not choose ends the start."""
    name = "TOOLHUB_BOOTSTRAP_PASSWORD"
    configured = settings.TOOLHUB_BOOTSTRAP_PASSWORD
    if not configured:
        if os.environ.get(name, "") or os.environ.get(f"{name}_FILE"):
            refuse(f"{name} is given and is empty: give a password, or leave it out for a random one.")
        return secrets.token_urlsafe(12)
    try:
        validate_password(configured, User(email=settings.TOOLHUB_BOOTSTRAP_EMAIL))
    except ValidationError as error:
        refuse(f"{name} is too weak: {' '.join(error.messages)}")
    return configured
