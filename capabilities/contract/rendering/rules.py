"""Rules for JSON Schemas, as data: the keywords that vendors are known to refuse.

Sources: OpenAI's guides to function calling and structured outputs; Anthropic's refusals of `input_schema`; Gemini's
reference of `Schema`, whose OpenAI endpoint takes no other keyword; the grammars of llama.cpp and vLLM.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Enums longer than this are refused everywhere (OpenAI: 1,000 values in a schema).
MOST_VALUES = 1_000


@dataclass(frozen=True)
class Rules:
    """One vendor's limits; None and True: there is none."""

    key: str
    #: Keywords that it takes.
    keywords: frozenset[str] | None = None
    #: Values of `format` that it takes.
    formats: frozenset[str] | None = None
    #: Types whose `enum` it takes.
    enum_types: frozenset[str] | None = None
    #: Values of one enum.
    most_values: int = MOST_VALUES
    #: Whether `type` may be a list, and how it says that a value may be null, if it can.
    takes_type_lists: bool = True
    nullable: str = ""
    #: Whether every schema has to say its type; and whether `anyOf` has to stand alone.
    needs_types: bool = False
    any_of_alone: bool = False
    #: Whether it follows `$ref`.
    takes_references: bool = True
    #: Levels of objects and lists in each other.
    most_levels: int | None = None
    #: Whether a definition may say `strict`.
    takes_strict: bool = True


#: Rules for every vendor: nothing is lost, and each of their steps is one that some vendor insists on.
BASE = Rules("")
_COMMON = frozenset(
    {
        *("type", "title", "description", "enum", "properties", "required", "items", "anyOf", "default"),
        *("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
    }
)
GOOGLE = Rules(
    "google",
    keywords=_COMMON | {"format", "pattern", "nullable", "minProperties", "maxProperties"},
    formats=frozenset({"date-time", "enum", "float", "double", "int32", "int64"}),
    enum_types=frozenset({"string"}),
    most_values=250,
    takes_type_lists=False,
    nullable="nullable",
    needs_types=True,
    any_of_alone=True,
    takes_references=False,
    most_levels=16,
    takes_strict=False,
)
#: For servers that make a grammar of the schema: nothing that only some of them can write as one.
PLAIN = Rules(
    "plain",
    keywords=_COMMON - {"minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"},
    formats=frozenset(),
    most_values=250,
    takes_type_lists=False,
    takes_references=False,
    most_levels=8,
    takes_strict=False,
)
ALL_RULES = {each.key: each for each in (BASE, GOOGLE, PLAIN)}


def rules_named(key: str) -> Rules:
    """Return the rules of this key; BASE where there are none."""
    return ALL_RULES.get(key, BASE)
