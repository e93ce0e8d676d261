"""Changes of a policy: it lets one more tool through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from capabilities.access.policies.writes import policy_content, save_policy, stored_policy
from capabilities.choosing.pipeline.policies import Policies, rules_of
from capabilities.contract.patterns import pattern_matches
from capabilities.contract.policy import PolicyLayer, PolicyRules, Rule
from capabilities.contract.spec import ToolSpec
from capabilities.models import Provider
from sessions.insight.explain.inputs import Inputs
from sessions.insight.explain.remedies.ways import Blocked, Page, Way
from toolhub.tenants.models import Membership


def let_through(blocked: Blocked, *, of_provider: bool) -> Iterator[Way]:
    """Take out what denies the tool, or allow it beside what is allowed: in the policy of the model's provider, or in
    the organisation's."""
    inputs, spec = blocked.inputs, blocked.tool.spec
    provider = inputs.agent.model.provider if of_provider else None
    layer = _layer(inputs.policies, provider)
    if layer is None or layer.rules.ruling(spec).rule == Rule.MALFORMED:
        return
    rules = opened(layer.rules, spec)
    freed = [each for each in layer.rules.deny if each not in rules.deny]
    texts = [f"no longer denies {', '.join(freed)}"] if freed else []
    texts += ["also allows it"] if rules.also_allow != layer.rules.also_allow else []
    page = Page("policy_provider_update", (provider.slug,)) if provider is not None else Page("policy_update")
    yield Way(
        f"{layer.title} {' and '.join(texts)}",
        page,
        partial(_with_rules, blocked, provider, rules),
        partial(_save, provider, spec),
    )


def opened(rules: PolicyRules, spec: ToolSpec) -> PolicyRules:
    """Return these rules, so that the tool passes: without what denies it, and with its name where nothing allows
    it."""
    deny = tuple(each for each in rules.deny if not pattern_matches(each, spec.name, spec.category))
    freed = replace(rules, deny=deny)
    return freed if freed.ruling(spec).kept else replace(freed, also_allow=(*rules.also_allow, spec.name))


def _layer(policies: Policies, provider: Provider | None) -> PolicyLayer | None:
    return policies.organisation if provider is None else policies.providers.get(provider.public_id)


def _with_rules(blocked: Blocked, provider: Provider | None, rules: PolicyRules) -> Inputs | None:
    """Return the inputs under these rules, with what else the change lets through; None where there is no room."""
    inputs, spec = blocked.inputs, blocked.tool.spec
    layer = _layer(inputs.policies, provider)
    if layer is None or not inputs.has_room_for(spec):
        return None
    specs = {key: row.spec for key, row in inputs.rows.items()}
    opened_now = {key for key, of in specs.items() if rules.ruling(of).kept and not layer.rules.ruling(of).kept}
    changed = replace(layer, rules=rules)
    if provider is None:
        policies = replace(inputs.policies, organisation=changed)
    else:
        policies = replace(inputs.policies, providers={**inputs.policies.providers, provider.public_id: changed})
    return inputs.changed(frozenset({spec.tool_id, *opened_now}), policies=policies)


def _save(provider: Provider | None, spec: ToolSpec, actor: Membership) -> None:
    stored = stored_policy(provider)
    if stored is not None:
        rules = opened(rules_of(stored), spec)
        content = replace(policy_content(stored), also_allow=rules.also_allow, deny=rules.deny)
        save_policy(provider, content, actor=actor)
