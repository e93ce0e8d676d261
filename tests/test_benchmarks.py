"""The benchmarks that run in this process say what they promise."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from benchmarks import prefix, scenes
from benchmarks.prefix import Row


@pytest.mark.django_db(transaction=True)
def test_what_repeats_of_each_request_reaches_its_goal_in_each_loading_mode() -> None:
    modes = prefix.rows_per_mode()

    found = prefix.shares(modes)
    assert list(found) == ["next_request", "same_run", "constant"]
    assert 0 < found["next_request"] < 1
    assert 0.6 <= found["same_run"] < 1
    assert 0.9 <= found["constant"] < 1
    for rows in modes.values():
        assert len(rows) == 20
        assert 0 <= prefix.share(rows) - prefix.stored_share(rows) <= prefix.TOLERANCE
    assert changes_of_tools(modes["constant"]) == 0
    assert changes_of_tools(modes["same_run"]) == changes_of_tools(modes["next_request"]) == 4


def changes_of_tools(rows: Sequence[Row]) -> int:
    return sum(before.tools != after.tools for before, after in pairwise(rows))


def test_what_repeats_is_measured_in_the_order_tools_then_messages() -> None:
    tool = {"type": "function", "function": {"name": "a"}}
    first = {"messages": [{"role": "user", "content": "Hä"}], "model": "m", "tools": [tool]}
    more = {**first, "messages": [*first["messages"], {"role": "assistant", "content": "so"}]}
    other = {**more, "tools": [tool, tool]}
    sent = [prefix.rendering(prefix.compact(each)) for each in (first, more, other)]

    assert sent[0] == '[{"type":"function","function":{"name":"a"}}]{"role":"user","content":"Hä"}'.encode()
    assert prefix.common_bytes(sent[0], sent[1]) == len(sent[0])
    assert prefix.common_bytes(sent[1], sent[2]) == len(json.dumps([tool], separators=(",", ":"))) - 1


def test_the_script_of_the_benchmark_has_the_rounds_and_loads_that_it_promises() -> None:
    acts = [act for scene in scenes.SCENES for each in scene.rounds for act in each]

    assert sum(len(scene.rounds) + 1 for scene in scenes.SCENES) == 20
    assert [sum(isinstance(act, kind) for act in acts) for kind in (scenes.Load, scenes.Unload)] == [3, 1]
    assert sorted(len(tools) for tools in scenes.TOOLKITS.values()) == [3, 5, 8]
    assert len(scenes.OWN) == 15
