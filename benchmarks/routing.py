"""How well the router finds the tools that messages need, beside plain keywords and SQLite's full text search.

    .venv/bin/python benchmarks/routing.py FOLDER [--extra-catalogs DIR] [--predictions FILE]

FOLDER has catalogs/NAME.json and queries/SET.jsonl. A catalogue is a list of tools in OpenAI form, with an optional
"x_toolkit"; or an object {"tools": {category: [name]}, "keywords...": {category: [phrase]}}, whose categories are
asked for. A row of a set has "id", "query", "catalogue", "tools_needed", "no_tool", and where it applies "alternatives"
(other tools that do), "scope" (the only tools allowed), "context" (earlier messages), "tools_used_before",
"conversation", "categories_ok". A row of the catalogue "*" needs no tool of any; the catalogues take turns with these.

Prints a table with a line for each set, and at the end one line of JSON, the macro means of the sets. A set whose rows
have a scope is shown but is not in the mean of recalls: to rank a handful of tools proves little.

r5, r10            share of the needed tools among the first 5 and 10 of the ranking
r1k                share within 1,000 tokens of definitions (o200k, compact JSON)
tokens             tokens of what `route` keeps within that budget, mean
false_empty        share of the messages that need a tool and get none; false_empty_worst: of the worst catalogue
correct_empty      share of the messages that need none and get none; small_talk_empty: of small talk
categories_top3    share of the messages with a right category among the first three; categories_false_empty,
                   categories_correct_empty: as above
ms_N, p95_ms_N     CPU of one `route` among N tools, median and 95th percentile; null where the folder has fewer
index_ms_N         CPU to build the index of N new tools; index_again_ms_N: with one changed; index_mb_N: memory
table_ms, table_mb time and memory to read the table of words' vectors
keywords_*, fts5_* the same figures of plain keywords and of SQLite's FTS5

--predictions FILE writes a line for each row: {"id", "file", "tools"}, the ranking, [] where it calls for none.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402 -- after the number of threads
import toktok  # noqa: E402

from capabilities.choosing.routing.categories import category_index, rank_categories  # noqa: E402
from capabilities.choosing.routing.documents import Document, document_of  # noqa: E402
from capabilities.choosing.routing.embedding import table  # noqa: E402
from capabilities.choosing.routing.gate import threshold  # noqa: E402
from capabilities.choosing.routing.index import Index, build_index  # noqa: E402
from capabilities.choosing.routing.keywords import Keywords  # noqa: E402
from capabilities.choosing.routing.requests import Context, RouteRequest  # noqa: E402
from capabilities.choosing.routing.router import route  # noqa: E402
from capabilities.choosing.routing.words import content_words  # noqa: E402

BUDGET = 1_000
SIZES = (50, 500, 5_000)
#: Messages of one measurement of time, and the longest ranking that a baseline gives.
TIMED = 300
RANKED = 50
WAYS = ("router", "keywords", "fts5")
Row = dict[str, Any]
#: Where the catalogue of a row is any.
ANY = "*"


@dataclass(frozen=True)
class Catalogue:
    name: str
    documents: tuple[Document, ...]
    tokens: dict[str, int]

    @cached_property
    def index(self) -> Index:
        return build_index(self.documents)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.documents)

    @cached_property
    def texts(self) -> list[tuple[str, str]]:
        return [(each.name, f"{each.name} {each.description}".lower()) for each in self.documents]

    @cached_property
    def fts5(self) -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.execute("CREATE VIRTUAL TABLE t USING fts5(name, description, parameters, tokenize='porter')")
        rows = [(" ".join(content_words(each.name)), each.description, each.parameters) for each in self.documents]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        return connection


@dataclass(frozen=True)
class Categories:
    """plain: the keywords of one list, as they stand there, for the plain way."""

    name: str
    keywords: Keywords
    plain: dict[str, list[str]]
    tools: tuple[Document, ...]

    @cached_property
    def index(self) -> Index:
        return category_index(self.keywords, self.tools)


@dataclass
class Scores:
    """Sums over the rows of a set, by name."""

    rows: int = 0
    needing: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    none: int = 0
    none_right: int = 0

    def add(self, **figures: float) -> None:
        self.needing += 1
        for name, figure in figures.items():
            self.sums[name] = self.sums.get(name, 0.0) + figure

    def mean(self, name: str) -> float | None:
        return self.sums.get(name, 0.0) / self.needing if self.needing else None


# -- Reading -----------------------------------------------------------------------------------------------------------


def read_catalogues(folders: Iterable[Path]) -> tuple[dict[str, Catalogue], list[Categories]]:
    """The catalogues of the folders; where two have one name, the first folder's."""
    catalogues: dict[str, Catalogue] = {}
    categories: list[Categories] = []
    for folder in folders:
        inner = folder / "catalogs"
        for path in sorted((inner if inner.is_dir() else folder).glob("*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(content, dict) and "tools" in content:
                categories.append(read_categories(path.stem, content))
            elif isinstance(content, list) and path.stem not in catalogues:
                catalogues[path.stem] = read_catalogue(path.stem, content)
    return catalogues, categories


def read_catalogue(name: str, tools: Sequence[Mapping[str, Any]]) -> Catalogue:
    documents = [document_of(tool["function"], toolkit=tool.get("x_toolkit") or "") for tool in tools]
    sent = [{"type": "function", "function": tool["function"]} for tool in tools]
    texts = [json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in sent]
    counts = toktok.batch_count(texts, "o200k_base")
    return Catalogue(name, tuple(documents), dict(zip([each.name for each in documents], counts, strict=True)))


def read_categories(name: str, content: Mapping[str, Any]) -> Categories:
    lists = [value for key, value in content.items() if key.startswith("keywords") and isinstance(value, dict)]
    phrases: dict[str, list[str]] = {}
    for each in lists:
        for category, words in each.items():
            phrases.setdefault(category, []).extend(words)
    tools = [Document(tool, category=category) for category, names in content["tools"].items() for tool in names]
    return Categories(name, Keywords.of(phrases), lists[0] if lists else {}, tuple(tools))


def read_rows(folder: Path) -> dict[str, list[Row]]:
    return {
        path.stem: [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        for path in sorted((folder / "queries").glob("*.jsonl"))
    }


def context_of(row: Row) -> Context:
    earlier = row.get("context") or []
    users = [each["content"] for each in earlier if each["role"] == "user" and each.get("content")]
    answers = [each["content"] for each in earlier if each["role"] == "assistant" and each.get("content")]
    return Context(tuple(reversed(users)), answers[-1] if answers else "", tuple(row.get("tools_used_before") or ()))


# -- The three ways ----------------------------------------------------------------------------------------------------


def by_router(catalogue: Catalogue, row: Row) -> tuple[list[str], int]:
    """The ranking, empty where the message calls for no tool, and the tokens of what is kept."""
    allowed = tuple(row["scope"]) if row.get("scope") else catalogue.names
    request = RouteRequest(
        row["query"], allowed, context=context_of(row), budget_tokens=BUDGET, tokens=catalogue.tokens
    )
    found = route(catalogue.index, request)
    if found.is_empty:
        return [], 0
    return [name for name, _ in found.ranked], sum(catalogue.tokens[name] for name in found.names)


def by_keywords(catalogue: Catalogue, row: Row) -> list[str]:
    """Tools by how many of the message's words stand anywhere in their name or description."""
    words = set(content_words(row["query"]))
    scope = set(row.get("scope") or ())
    counted = [(-sum(word in text for word in words), name) for name, text in catalogue.texts]
    return [name for count, name in sorted(counted) if count and (not scope or name in scope)][:RANKED]


def by_fts5(catalogue: Catalogue, row: Row) -> list[str]:
    words = dict.fromkeys(content_words(row["query"]))
    if not words:
        return []
    query = " OR ".join(f'"{word}"' for word in words)
    sql = "SELECT rowid FROM t WHERE t MATCH ? ORDER BY bm25(t, 5.0, 1.0, 0.5), rowid"
    if "scope" not in row:
        sql += f" LIMIT {RANKED}"
    names = [catalogue.documents[number - 1].name for (number,) in catalogue.fts5.execute(sql, (query,))]
    scope = set(row.get("scope") or names)
    return [name for name in names if name in scope][:RANKED]


def categories_by_keywords(categories: Categories, row: Row) -> list[str]:
    """Those with a keyword anywhere in the text, by how many they have."""
    text = row["query"].lower()
    counted = [(-sum(word.lower() in text for word in words), name) for name, words in categories.plain.items()]
    return [name for count, name in sorted(counted) if count]


# -- Scoring, as score.py does -----------------------------------------------------------------------------------------


def score(scores: Scores, row: Row, ranking: Sequence[str], tokens: Mapping[str, int], sent: float = 0.0) -> None:
    scores.rows += 1
    if row["no_tool"]:
        scores.none += 1
        scores.none_right += not ranking
        return
    alternatives = row.get("alternatives") or {}
    rank = {name: at for at, name in enumerate(ranking)}
    far = len(tokens) + len(ranking) + RANKED
    best = [min(rank.get(each, far) for each in alternatives.get(name, [name])) for name in row["tools_needed"]]
    fits = within(ranking, tokens)
    shares = {
        name: sum(at < limit for at in best) / len(best) for name, limit in (("r5", 5), ("r10", 10), ("r1k", fits))
    }
    scores.add(**shares, false_empty=float(not ranking), tokens=sent)


def within(ranking: Sequence[str], tokens: Mapping[str, int]) -> int:
    """How many of the first ones fit into the budget; one at least."""
    used = 0
    for at, name in enumerate(ranking):
        used += tokens[name]
        if used > BUDGET and at:
            return at
    return len(ranking)


def score_categories(scores: Scores, row: Row, ranking: Sequence[str]) -> None:
    scores.rows += 1
    if row["no_tool"]:
        scores.none += 1
        scores.none_right += not ranking
    else:
        right = any(name in row["categories_ok"] for name in ranking[:3])
        scores.add(categories_top3=float(right), false_empty=float(not ranking))


@dataclass
class Run:
    """All figures of one run: by way and set, false empties by catalogue, empties by kind of row."""

    scores: dict[tuple[str, str], Scores] = field(default_factory=dict)
    empties: dict[str, list[bool]] = field(default_factory=dict)
    kinds: dict[str, list[bool]] = field(default_factory=dict)
    scoped: set[str] = field(default_factory=set)
    categories: set[str] = field(default_factory=set)

    def of(self, way: str, name: str) -> Scores:
        return self.scores.setdefault((way, name), Scores())


def run_sets(
    sets: Mapping[str, list[Row]], catalogues: Mapping[str, Catalogue], categories: Sequence[Categories]
) -> tuple[Run, Iterator[str]]:
    run = Run()
    lines: list[str] = []
    for name, rows in sets.items():
        for number, row in enumerate(rows):
            if "categories_ok" in row:
                ranking = run_categories(run, name, row, categories)
            else:
                ranking = run_row(run, name, row, catalogue_of(row, number, catalogues))
            lines.append(json.dumps({"id": row["id"], "file": name, "tools": ranking}))
    return run, iter(lines)


def catalogue_of(row: Row, number: int, catalogues: Mapping[str, Catalogue]) -> Catalogue:
    if row["catalogue"] == ANY:
        return list(catalogues.values())[number % len(catalogues)]
    return catalogues[row["catalogue"]]


def run_row(run: Run, name: str, row: Row, catalogue: Catalogue) -> list[str]:
    ranking, sent = by_router(catalogue, row)
    if "scope" in row:
        run.scoped.add(name)
    score(run.of("router", name), row, ranking, catalogue.tokens, sent)
    score(run.of("keywords", name), row, by_keywords(catalogue, row), catalogue.tokens)
    score(run.of("fts5", name), row, by_fts5(catalogue, row), catalogue.tokens)
    if row["no_tool"]:
        run.kinds.setdefault(row.get("kind") or "no_tool", []).append(not ranking)
    else:
        run.empties.setdefault(catalogue.name, []).append(not ranking)
    return ranking


def run_categories(run: Run, name: str, row: Row, categories: Sequence[Categories]) -> list[str]:
    run.categories.add(name)
    one = next((each for each in categories if each.name == row.get("catalogue", name)), categories[0])
    ranking = [each.name for each in rank_categories(one.index, one.keywords, row["query"])]
    score_categories(run.of("router", name), row, ranking)
    score_categories(run.of("keywords", name), row, categories_by_keywords(one, row))
    return ranking


# -- Time and memory ---------------------------------------------------------------------------------------------------


def measure_times(catalogues: Mapping[str, Catalogue], rows: Sequence[Row]) -> dict[str, float | None]:
    pool = {each.name: (each, one.tokens[each.name]) for one in catalogues.values() for each in one.documents}
    step = max(1, len(rows) // TIMED)
    asked = [{key: value for key, value in row.items() if key != "scope"} for row in rows[::step]][:TIMED]
    figures: dict[str, float | None] = {}
    for size in SIZES:
        chosen = [pool[name] for name in sorted(pool)[:: max(1, len(pool) // size)]][:size]
        if len(chosen) < size:
            figures |= {f"{name}_{size}": None for name in ("ms", "p95_ms", "index_ms", "index_again_ms", "index_mb")}
            continue
        one = Catalogue("timed", tuple(each for each, _ in chosen), {each.name: tokens for each, tokens in chosen})
        figures |= times_of_index(one, size) | times_of_ways(one, asked, size)
    return figures


def times_of_index(one: Catalogue, size: int) -> dict[str, float | None]:
    fresh = [Document(each.name, f"{each.description} {size}", each.parameters) for each in one.documents]
    began = time.thread_time()
    index = build_index(fresh)
    threshold(index)
    built = time.thread_time()
    threshold(build_index([*fresh[1:], Document("another_one", "Another tool")]))
    again = time.thread_time()
    figures = {
        "index_ms": 1000 * (built - began),
        "index_again_ms": 1000 * (again - built),
        "index_mb": index.bytes / 1e6,
    }
    return {f"{name}_{size}": round(figure, 2) for name, figure in figures.items()}


def times_of_ways(one: Catalogue, asked: Sequence[Row], size: int) -> dict[str, float | None]:
    ways: dict[str, Callable[[Catalogue, Row], object]] = {"": by_router, "keywords_": by_keywords, "fts5_": by_fts5}
    figures: dict[str, float | None] = {}
    for prefix, way in ways.items():
        way(one, asked[0])
        spent = []
        for row in asked:
            began = time.thread_time()
            way(one, row)
            spent.append(1000 * (time.thread_time() - began))
        figures[f"{prefix}ms_{size}"] = round(float(np.median(spent)), 3)
        figures[f"{prefix}p95_ms_{size}"] = round(float(np.percentile(spent, 95)), 3)
    return figures


def measure_table() -> dict[str, float | None]:
    before, began = resident_mb(), time.perf_counter()
    if table() is None:
        return {"table_ms": None, "table_mb": None}
    return {"table_ms": round(1000 * (time.perf_counter() - began), 1), "table_mb": round(resident_mb() - before, 1)}


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# -- Printing ----------------------------------------------------------------------------------------------------------


def print_table(run: Run) -> None:
    columns = ("r5", "r10", "r1k", "tokens", "false_empty", "correct_empty")
    print(f"{'set':20s} {'way':9s} {'rows':>5s} " + " ".join(f"{column:>13s}" for column in columns))
    for (way, name), scores in sorted(run.scores.items(), key=lambda each: (each[0][1], WAYS.index(each[0][0]))):
        columns_here: Sequence[str] = (
            ("categories_top3", "false_empty", "correct_empty") if name in run.categories else columns
        )
        figures = " ".join(shown(figure(scores, column), column) for column in columns_here)
        head = " (top 3 categories, false_empty, correct_empty)" if name in run.categories else ""
        print(f"{name[:20]:20s} {way:9s} {scores.rows:5d} {figures}{head}")
    print("false empty by catalogue: " + mean_of_each(run.empties))
    print("correct empty by kind:    " + mean_of_each(run.kinds))


def figure(scores: Scores, column: str) -> float | None:
    if column == "correct_empty":
        return scores.none_right / scores.none if scores.none else None
    return scores.mean(column)


def shown(value: float | None, column: str) -> str:
    if value is None:
        return f"{'-':>13s}"
    return f"{value:13.0f}" if column == "tokens" else f"{value:13.3f}"


def mean_of_each(found: Mapping[str, Sequence[bool]]) -> str:
    return ", ".join(f"{name} {np.mean(each):.3f} of {len(each)}" for name, each in sorted(found.items()))


def summary(run: Run) -> dict[str, float | None]:
    """The macro means: of the recalls over the sets that rank tools, of the rest over those that have it."""
    line: dict[str, float | None] = {}
    for way in WAYS:
        prefix = "" if way == "router" else f"{way}_"
        scores = {name: each for (one, name), each in run.scores.items() if one == way}
        ranking = [each for name, each in scores.items() if name not in run.scoped | run.categories]
        asked = [each for name, each in scores.items() if name in run.categories]
        for column in ("r5", "r10", "r1k", "tokens", "false_empty"):
            line[prefix + column] = mean([each.mean(column) for each in ranking])
        line[f"{prefix}correct_empty"] = mean([figure(each, "correct_empty") for each in scores.values()])
        line[f"{prefix}categories_top3"] = mean([each.mean("categories_top3") for each in asked])
        line[f"{prefix}categories_false_empty"] = mean([each.mean("false_empty") for each in asked])
        line[f"{prefix}categories_correct_empty"] = mean([figure(each, "correct_empty") for each in asked])
    line["false_empty_worst"] = max((float(np.mean(each)) for each in run.empties.values()), default=None)
    small_talk = run.kinds.get("small_talk")
    line["small_talk_empty"] = float(np.mean(small_talk)) if small_talk else None
    return {name: None if value is None else round(value, 4) for name, value in line.items()}


def mean(figures: Iterable[float | None]) -> float | None:
    there = [each for each in figures if each is not None]
    return sum(there) / len(there) if there else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--extra-catalogs", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--predictions", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    if not (options.folder / "queries").is_dir():
        parser.error(f"{options.folder} has no folder queries/")
    read = measure_table()
    sets = read_rows(options.folder)
    catalogues, categories = read_catalogues([options.folder, *options.extra_catalogs])
    run, lines = run_sets(sets, catalogues, categories)
    if options.predictions:
        options.predictions.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print_table(run)
    timed = [row for rows in sets.values() for row in rows if "categories_ok" not in row]
    figures = summary(run) | measure_times(catalogues, timed) | read
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
