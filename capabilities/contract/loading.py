"""The meta-tools: those that load other tools, and the one that reads on in results. What no toolkit may hold.

Constants only.
"""

from __future__ import annotations

#: Where they live.
META_CATEGORY = "dynamic"
LIST_TOOLKITS = "list_toolkits"
LOAD_TOOLS = "load_tools"
UNLOAD_TOOLS = "unload_tools"
LOAD_CATEGORY = "load_tool_category"
SEARCH_TOOLS = "search_tools"
CALL_TOOL = "call_tool"
#: Makes a tool of an agent's own; it is there only where the organisation lets agents make tools.
CREATE_TOOL = "create_dynamic_tool"
#: Reads on in a result that was cut.
READ_RESULT = "read_result"
LOADING_TOOLS = frozenset({LIST_TOOLKITS, LOAD_TOOLS, UNLOAD_TOOLS, LOAD_CATEGORY, SEARCH_TOOLS, CALL_TOOL})
#: They change nothing but what a session has at hand, and only within what its member may use; what they read was in
#: the session already. So no role need list them; a role or grant that denies one, and the switch in the catalogue,
#: count as for any tool.
META_TOOLS = LOADING_TOOLS | {READ_RESULT}

#: Delegation is given to an agent itself, or loaded with its whole category by who may; never by a toolkit.
SPAWN_AGENT = "spawn_agent"
#: Tools that no toolkit holds, neither by name nor through a category: those that load others.
RESERVED_TOOLS = META_TOOLS | {SPAWN_AGENT, "delegate", "dynamic_tools", "self_config"}
#: The meta-tools together: no toolkit is called that.
RESERVED_TOOLKITS = frozenset({"dynamic_tools"})
