"""An index is its content: equal documents make an equal index, and what is known of one is read once."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from capabilities.choosing.routing import embedding, words
from capabilities.choosing.routing.documents import Document, document_of, parameter_text
from capabilities.choosing.routing.features import features_of
from capabilities.choosing.routing.index import build_index, index_key
from capabilities.choosing.routing.words import language_of, stem, words_of
from tests.paths import ROOT
from tests.vectors import with_vectors

A = Document("issue_create", "Create an issue", "title body", "jira", "jira", ("ticket",))
B = Document("mail_send", "Send a mail", "to body", "mail")


def test_the_key_is_of_the_content_and_of_its_order() -> None:
    assert index_key([A, B]) == build_index([A, B]).key == index_key([replace(A), B])
    assert len({index_key(each) for each in ([A, B], [B, A], [A], [])}) == 4
    for field in ("name", "description", "parameters", "toolkit", "category", "title"):
        changed: dict[str, Any] = {field: "other"}
        assert index_key([replace(A, **changed)]) != index_key([A])


def test_a_changed_catalogue_reads_only_the_changed_document_again() -> None:
    build_index([A, B])

    with patch("capabilities.choosing.routing.features.content_words", wraps=words.content_words) as read:
        build_index([A, B, Document("new_one", "Something unheard of")])

    assert {call.args[0] for call in read.call_args_list} == {"new_one ", "Something unheard of", "", " "}


def test_the_features_of_a_document_are_its_words_by_field() -> None:
    found = features_of(A, "english")

    assert dict(zip(found.stems, found.counts.tolist(), strict=True)) == {
        "issu": [1, 1, 0, 0],
        "creat": [1, 1, 0, 0],
        "titl": [0, 0, 1, 0],
        "bodi": [0, 0, 1, 0],
        "jira": [0, 0, 0, 2],
        "ticket": [0, 0, 0, 1],
    }
    assert found.pairs == (("issu", "creat"), ("creat", "issu"))


@pytest.mark.parametrize("missing", ["wordllama", "tokenizers", "safetensors.numpy"])
def test_an_index_without_a_table_has_no_vectors_and_the_rest_alike(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(embedding, "find_spec", lambda name: None if name == missing else find_spec(name))
    embedding.table.cache_clear()
    try:
        index = build_index([A, B])
    finally:
        monkeypatch.undo()
        embedding.table.cache_clear()

    assert index.vectors is None
    assert np.array_equal(index.impacts, build_index([A, B]).impacts)


@with_vectors
def test_the_table_gives_near_words_near_vectors() -> None:
    table = embedding.table()
    assert table is not None
    issue, ticket, song = table.vectors(["delete", "remove", "song"])

    assert float(issue @ ticket) > 0.5 > float(issue @ song)
    assert np.allclose(np.linalg.norm(table.vectors(["jira", "thermostat"]), axis=1), 1)
    assert table.vectors([]).shape == (0, table.size)


@with_vectors
def test_the_table_is_read_from_the_installed_files_without_a_network_or_a_client_of_hubs() -> None:
    script = (
        "import sys\n"
        "def refuse(event, _):\n"
        "    if event.startswith('socket.'): raise SystemExit(event)\n"
        "sys.addaudithook(refuse)\n"
        "sys.modules.update(dict.fromkeys(('huggingface_hub', 'requests')))\n"
        "from capabilities.choosing.routing.embedding import table\n"
        "print(table().text_vectors(['delete the ticket']).shape, 'wordllama' in sys.modules)\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert (ran.stdout.strip(), ran.stderr) == ("(1, 256) False", "")


def test_what_is_installed_brings_the_table_and_no_client_of_hubs() -> None:
    locked = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements" / "run.txt").read_text(), re.MULTILINE))

    assert locked & {"wordllama", "tokenizers", "huggingface-hub", "hf-xet", "requests"} == {"wordllama", "tokenizers"}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("file_read", ["file", "read"]),
        ("getURLForUser", ["get", "url", "for", "user"]),
        ("POST /me/player", ["post", "me", "player"]),
        ("s3-upload2", ["s", "3", "upload", "2"]),
        ("the user's file", ["the", "user", "file"]),
        ("don’t", ["don"]),
        ("天気予報", ["天気", "気予", "予報"]),
        ("\ud800a", ["a"]),
    ],
)
def test_names_are_split_into_words(name: str, split: list[str]) -> None:
    assert words_of(name) == split


def test_the_language_of_a_catalogue_is_that_of_its_descriptions() -> None:
    assert language_of(["Create an issue in the project", "Send the mail"]) == "english"
    assert language_of(["Legt eine Aufgabe für den Benutzer an", "Zeigt die Termine und die Aufgaben"]) == "german"
    assert language_of([]) == language_of(["xyz"]) == "english"
    assert stem("Aufgaben".lower(), "german") == stem("aufgabe", "german")


def test_a_definition_is_read_to_the_depth_and_length_that_are_useful() -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city", "enum": ["Rome", 3]},
            "days": {"type": "array", "items": {"type": "object", "properties": {"date": {"description": "A day"}}}},
            "odd": "no schema",
        },
    }
    found = document_of({"name": "w", "description": None, "parameters": schema}, toolkit="weather")

    words = "city Name of the city Rome days date A day odd"
    assert found == Document("w", "", words, "weather")
    deep: dict[str, object] = {}
    for _ in range(2_000):
        deep = {"properties": {"a": deep}}
    assert parameter_text(deep) == "a a a a"
    assert parameter_text(["no", "schema"]) == ""
