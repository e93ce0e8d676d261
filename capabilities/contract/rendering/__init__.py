"""A tool's definition as a vendor takes it, and the arguments of a call under the tool's own names again.

The stored schema stays as it is, and arguments are checked against it. Pure, without Django.

rules      what vendors are known to refuse
schemas    a schema under one vendor's rules
names      names of arguments that no vendor refuses, and back
"""

from capabilities.contract.rendering.names import restored, schema_with_other_names
from capabilities.contract.rendering.rules import ALL_RULES, BASE, Rules, rules_named
from capabilities.contract.rendering.schemas import rendered_wire

__all__ = ["ALL_RULES", "BASE", "Rules", "rendered_wire", "restored", "rules_named", "schema_with_other_names"]
