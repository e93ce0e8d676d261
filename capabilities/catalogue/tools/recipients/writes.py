"""Recipients of tools: agents, a toolkit, or nobody yet. The room `agents` makes the writes themselves: `Provided`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from capabilities.common.previews import Impact
from toolhub.tenants.models import Membership
from toolhub.tenants.provided import Provided

#: The next step for a tool that no agent has, the same words wherever it is said.
NO_AGENT = "No agent has this tool: add it to an agent or toolkit."


@dataclass(frozen=True)
class Recipients:
    """Recipients of tools. With a toolkit, the agents may load that; without, the tools become their own.

    `agents` are short names; `toolkit` is the name of one that is there, `new_toolkit` that of one to make.
    """

    agents: tuple[str, ...] = ()
    toolkit: str = ""
    new_toolkit: str = ""

    @property
    def is_nobody(self) -> bool:
        return not (self.agents or self.toolkit or self.new_toolkit)


NOBODY = Recipients()


@Provided
def give_tools(names: Sequence[str], to: Recipients, *, actor: Membership) -> None:
    """Give tools to recipients; audited, nothing for NOBODY. Raises ChangeRefused for a recipient that is not there, or
    that cannot have one of them, and PermissionDenied without the right `agents` or `toolkits` that it takes."""


@Provided
def impact_of_giving(change: Callable[[], object], to: Recipients, *, actor: Membership) -> Impact:
    """Preview a write that gives tools. Raises what `change` raises."""
    raise NotImplementedError


def sentence_of(recipients: Recipients, names: Sequence[str]) -> str:
    """Return who has the tools now, as a sentence for people; empty for nobody."""
    if recipients.is_nobody or not names:
        return ""
    toolkit = recipients.new_toolkit or recipients.toolkit
    parts = [f"in the toolkit {toolkit}"] if toolkit else []
    if recipients.agents:
        parts.append(f"{'for' if toolkit else 'with'} {', '.join(recipients.agents)}")
    return f"{'It is' if len(names) == 1 else 'They are'} {' '.join(parts)} now."
