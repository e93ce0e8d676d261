"""Runs of tools by hand, done as a worker does them."""

from __future__ import annotations

from sessions.insight.trial import runs as trial_runs
from sessions.models import TrialRun
from toolhub.tenants.models import Membership
from toolhub.tenants.rows.scope import organisation_scope


def last_trial(member: Membership) -> TrialRun:
    with organisation_scope(member.organisation_id):
        return TrialRun.objects.filter(membership=member).latest("pk")


def run_trial(member: Membership) -> TrialRun:
    """The last run that the member asked for, after a worker took it."""
    trial_runs.run_trial(last_trial(member).public_id)
    return last_trial(member)
