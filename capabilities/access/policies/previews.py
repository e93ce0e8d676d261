"""Previews of policies and profiles. Provided by the room `sessions`."""

from __future__ import annotations

from capabilities.common.previews import Impact
from capabilities.common.provided import Provided

#: Changes that saving a policy makes, over the agents that it is about: `(provider or None, content, actor=...)`.
impact_of_policy: Provided[..., Impact] = Provided("previews of policies")
#: Changes that saving a profile makes, over the agents under a policy with it: `(profile, content, actor=...)`.
impact_of_profile: Provided[..., Impact] = Provided("previews of profiles")
