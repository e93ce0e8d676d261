"""The figures of `/metrics` in Prometheus' form: their names, units and labels. docs/metrics.md says the same in words.

Names that tenants chose are no labels: tools that are not built in are "other", and so are models that the public
price list does not know. Only `organisation`, where the operator asks for it, names a tenant.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sessions.models import BUCKETS, OPEN_STATUSES, ApprovalKind
from sessions.usage.metrics import queries
from sessions.usage.metrics.queries import Rows
from toolhub.tenants.rows.money import NANO
from toolhub.tenants.rows.scope import system_scope


@dataclass(frozen=True)
class Figure:
    """A counter over a column of sums."""

    name: str
    help: str
    column: str
    #: Number in the column that is one of the figure's unit.
    unit: int = 1


#: Labels, with the columns that they are read from.
OF_TURN = {"status": "status", "error_code": "error_code"}
OF_MODEL = {"provider": "vendor", "model": "model_name"}
OF_TOOL = {"kind": "kind", "tool": "tool_name"}
OF_CALL = {**OF_TOOL, "outcome": "outcome"}
OF_BUDGET = {"measure": "measure", "window": "budget__window"}

TURNS = (Figure("toolhub_turns_ended", "Turns that ended.", "sum_turns"),)
MODELS = (
    Figure("toolhub_model_calls", "Model calls (rounds) that brought a reply.", "sum_calls"),
    Figure("toolhub_model_calls_unpriced", "Of these, calls without a price.", "sum_unpriced_calls"),
    Figure("toolhub_input_tokens", "Tokens that went to models, cached ones included.", "sum_input_tokens"),
    Figure("toolhub_cached_input_tokens", "Of these, tokens read from a cache of the provider.", "sum_cached_tokens"),
    Figure("toolhub_cache_write_tokens", "Of these, tokens written to a cache.", "sum_cache_write_tokens"),
    Figure("toolhub_output_tokens", "Tokens that models wrote, thoughts included.", "sum_output_tokens"),
    Figure("toolhub_reasoning_tokens", "Of these, tokens that models thought.", "sum_reasoning_tokens"),
    Figure("toolhub_cost_dollars", "US dollars of the calls that had a price.", "sum_cost", NANO),
)
CALLS = (Figure("toolhub_tool_calls", "Tool calls that models asked for.", "sum_calls"),)
TOOLS = (
    Figure("toolhub_tool_seconds", "Seconds that calls took which ended as done or failed.", "sum_milliseconds", 1000),
)


class Figures:
    """A collector: each collection reads the tables anew. Nine queries, whatever is in them."""

    def __init__(self, *, by_organisation: bool = False) -> None:
        self.by_organisation = by_organisation

    def collect(self) -> Iterator[Metric]:
        with system_scope():
            found = [*self._totals(), *self._open(), *self._budgets()]
        yield from found

    def _totals(self) -> Iterator[Metric]:
        models = queries.model_calls(by_organisation=self.by_organisation)
        tools = queries.tool_calls(by_organisation=self.by_organisation)
        yield from self._counters(TURNS, OF_TURN, queries.ended_turns(by_organisation=self.by_organisation))
        yield from self._counters(MODELS, OF_MODEL, models)
        yield from self._counters(CALLS, OF_CALL, tools)
        yield from self._counters(TOOLS, OF_TOOL, tools)
        about = "Seconds of model calls that brought a reply, from the first try to the last word."
        yield self._histogram("toolhub_model_call_seconds", about, {"provider": "vendor"}, models)
        about = "Seconds of tool calls that ended as done or failed."
        yield self._histogram("toolhub_tool_call_seconds", about, {"kind": "kind"}, tools)

    def _open(self) -> Iterator[Metric]:
        now, turns = timezone.now(), queries.open_turns(by_organisation=self.by_organisation)
        about = "Turns that have not ended, by where they stand."
        yield self._gauge("toolhub_turns", about, turns, "turns", {"status": "status"}, OPEN_STATUSES)
        about = "Of the running turns those whose worker is not heard of any more."
        yield self._gauge("toolhub_turns_left", about, turns, "left")
        waiting = _aged(queries.waiting_since(by_organisation=self.by_organisation), now)
        about = "Seconds for which the turn waits for a worker that waits longest."
        yield self._gauge("toolhub_queue_oldest_seconds", about, waiting, "oldest")
        about = f"Ended turns that the counters do not hold yet, at most {queries.MOST_UNCOUNTED}."
        yield GaugeMetricFamily("toolhub_turns_uncounted", about, value=queries.uncounted_turns())
        pending = _aged(queries.pending_approvals(by_organisation=self.by_organisation), now)
        kind, kinds = {"kind": "kind"}, ApprovalKind.values
        about = "Approvals, questions, forms and links that wait for a person."
        yield self._gauge("toolhub_approvals_waiting", about, pending, "waiting", kind, kinds)
        about = "Seconds for which the one of them waits that waits longest."
        yield self._gauge("toolhub_approvals_oldest_seconds", about, pending, "oldest", kind, kinds)

    def _budgets(self) -> Iterator[Metric]:
        rows = queries.running_budgets(timezone.now(), by_organisation=self.by_organisation)
        rows = [{**row, "share": max(0.0, row["share"])} for row in rows]
        about = "Windows of hard budgets that run now and have been used."
        yield self._gauge("toolhub_budget_windows", about, rows, "windows", OF_BUDGET)
        about = "Of these, windows with nothing left: they stop turns."
        yield self._gauge("toolhub_budget_windows_spent", about, rows, "spent_windows", OF_BUDGET)
        about = "The lowest share (0 to 1) that one of these windows has left."
        yield self._gauge("toolhub_budget_left_ratio", about, rows, "share", OF_BUDGET)

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {"organisation": "slug", **labels} if self.by_organisation else dict(labels)

    def _counters(self, figures: Iterable[Figure], labels: Mapping[str, str], rows: Rows) -> Iterator[Metric]:
        named = self._labels(labels)
        for figure in figures:
            family = CounterMetricFamily(figure.name, figure.help, labels=list(named))
            for values, sums in _added(rows, named.values(), (figure.column,)).items():
                family.add_metric(values, sums[figure.column] / figure.unit)
            yield family

    def _histogram(self, name: str, about: str, labels: Mapping[str, str], rows: Rows) -> Metric:
        named = self._labels(labels)
        family = HistogramMetricFamily(name, about, labels=list(named))
        columns = [f"sum_{each}" for each in (*BUCKETS, "timed_calls", "milliseconds")]
        for values, sums in _added(rows, named.values(), columns).items():
            buckets = [(str(most), sums[f"sum_{column}"]) for column, most in BUCKETS.items()]
            buckets.append(("+Inf", sums["sum_timed_calls"]))
            family.add_metric(values, buckets, sums["sum_milliseconds"] / 1000)
        return family

    def _gauge(
        self,
        name: str,
        about: str,
        rows: Rows,
        column: str,
        labels: Mapping[str, str] | None = None,
        always: Sequence[str] = (),
    ) -> Metric:
        """Build a gauge. `always`: values of the one label that are there without a row too, where organisations are
        not kept apart."""
        named = self._labels(labels or {})
        family = GaugeMetricFamily(name, about, labels=list(named))
        found: dict[tuple[str, ...], float] = {}
        if not self.by_organisation:
            found = {(str(each),): 0 for each in always} if named else {(): 0}
        found |= {values: sums[column] for values, sums in _added(rows, named.values(), (column,)).items()}
        for values, amount in found.items():
            family.add_metric(values, amount)
        return family


def _added(rows: Rows, key: Iterable[str], columns: Sequence[str]) -> dict[tuple[str, ...], dict[str, float]]:
    """The sums of these columns over the rows that have the same values in `key`."""
    names, found = list(key), dict[tuple[str, ...], dict[str, float]]()
    for row in rows:
        sums = found.setdefault(tuple(str(row[name]) for name in names), dict.fromkeys(columns, 0))
        for name in columns:
            sums[name] += row[name]
    return dict(sorted(found.items()))


def _aged(rows: Rows, now: datetime) -> Rows:
    """The rows with the age in seconds of their `oldest`, in place of when that began."""

    def age(since: datetime | None) -> float:
        return max(0.0, (now - since).total_seconds()) if since else 0.0

    return [{**row, "oldest": age(row["oldest"])} for row in rows]
