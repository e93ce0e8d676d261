"""Changes of a session: something is loaded, or makes room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from capabilities.choosing.pipeline.candidates import Bundle
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.remedies.ways import TRIED, Blocked, Page, Way, bundles_with
from sessions.models import LoadSource
from sessions.selection.holdings import Load
from sessions.selection.loading import writes as loading
from sessions.selection.loading.loadable import LoadTarget, why_not
from sessions.selection.loading.queries import load_for
from sessions.selection.loading.writes import By
from toolhub.tenants.models import Membership


def load(blocked: Blocked, *, toolkits: bool) -> Iterator[Way]:
    """Load a toolkit that holds the tool; or, without `toolkits`, the tool alone."""
    if not blocked.in_session:
        return
    session = blocked.inputs.session
    for bundle in bundles_with(blocked):
        if (bundle.toolkit_id is not None) is toolkits:
            what = f"toolkit {bundle.name}" if toolkits else "it"
            yield Way(
                f"{what} is loaded in this session",
                Page("session_detail", (str(session.pk),)),
                partial(_with_load, blocked.inputs, bundle),
                partial(_load_now, blocked.inputs, bundle.name),
                f"{bundle.kind}:{bundle.name}",
                bundle,
            )


def _load_now(inputs: Inputs, name: str, actor: Membership) -> Any:
    return load_for(LoadTarget(inputs.session, inputs.agent), actor=actor, toolkit=name)


def _with_load(inputs: Inputs, bundle: Bundle) -> Inputs | None:
    """Return the inputs with the bundle loaded; None where it is loaded, or loading it is refused."""
    if bundle in inputs.holdings.bundles or inputs.is_constant or why_not(inputs.reading, bundle) is not None:
        return None
    loads = (*inputs.lasting_loads, Load(0, inputs.agent.pk, bundle, LoadSource.PERSON))
    found = inputs.changed(inputs.brought_by(bundle), holdings=replace(inputs.holdings, loads=loads))
    return None if found.clashes_with(bundle) else found


def unload(blocked: Blocked) -> Iterator[Way]:
    """Unload something else, so that there is room."""
    inputs = blocked.inputs
    loads = [load for load in inputs.holdings.loads if not load.bundle.is_initial]
    for load in loads[:TRIED] if blocked.in_session else []:
        rest = tuple(each for each in inputs.holdings.loads if each != load)
        bundle = load.bundle
        yield Way(
            f"{bundle.source} is unloaded in this session",
            Page("session_detail", (str(inputs.session.pk),)),
            partial(inputs.changed, frozenset(inputs.rows), holdings=replace(inputs.holdings, loads=rest)),
            partial(_unload_now, inputs, bundle),
            f"{bundle.kind}:{bundle.name}",
            load,
        )


def _unload_now(inputs: Inputs, bundle: Bundle, actor: Membership) -> Any:
    return loading.unload(LoadTarget(inputs.session, inputs.agent), bundle.name, by=By(actor), kind=bundle.kind)
