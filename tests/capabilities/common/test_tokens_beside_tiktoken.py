"""Tokens are counted as tiktoken counts them, OpenAI's own library.

tiktoken downloads its tables; LiteLLM's wheel brings those of both encodings, under the names of tiktoken's cache.
tiktoken checks each against its own hash. Qwen's tokenizer is not one of tiktoken's.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from capabilities.common import tokens
from capabilities.contract.wire import canonical_json
from capabilities.running.registry import registry
from tests.clients import installed
from tests.paths import ROOT

TABLES = "lib/python*/site-packages/litellm/litellm_core_utils/tokenizers"
#: Names of the files of o200k_base and cl100k_base in tiktoken's cache: SHA-1 of their addresses.
FILES = ("fb374d419588a4632f3f557e76b4b70aebbca790", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4")


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken reads the tables of a cache, and can download nothing."""
    installed.need_clients()
    (folder,) = (installed.FOLDER / ".venv").glob(TABLES)
    for name in FILES:
        shutil.copy(folder / name, tmp_path)

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("tiktoken asks for a download")

    monkeypatch.setattr("tiktoken.load.read_file", refused)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})


def sources() -> Iterator[str]:
    """Code, pages, prose and data of this repository."""
    for pattern in ("capabilities/**/*.py", "templates/**/*.html", "static/*.js", "docs/*.md", "docker-compose*.*"):
        for path in sorted(ROOT.glob(pattern)):
            yield path.read_text()


def definitions() -> Iterator[str]:
    """Every built-in tool as a model gets it: compact, and with indents."""
    for tool in registry.tools.values():
        yield tool.parameters_text
        yield canonical_json({"name": tool.name, "description": tool.description, "parameters": tool.parameters})


def alphabets() -> Iterator[str]:
    """Every character that there is, in runs of 256, apart and joined to words; surrogates too, which stand alone."""
    for first in range(0, 0x110000, 256):
        characters = [chr(each) for each in range(first, first + 256)]
        yield "".join(characters)
        yield " ".join(characters[:64])
    yield from (
        "Größe, naïve façade, Łódź, İstanbul ıI, ﬁn, Ångström, L’été",
        "Ελληνικά ἀρχή Ἑλλάς. Русский текст, Ё. Հայերեն. ქართული",
        "עִבְרִית \u200fשלום\u200f. العَرَبِيَّة ١٢٣٤. فارسی می\u200cخواهم. اردو",
        "हिन्दी क्षत्रिय १२३. বাংলা. தமிழ். ไทยไม่มีช่องว่าง. ခမာ. አማርኛ",
        "中文没有空格。繁體中文，一二三。日本語はカナと漢字。ﾊﾝｶｸ ＡＢＣ１２３. 한국어 조선말 각",
    )


def signs() -> Iterator[str]:
    """Emoji of several characters, white space of every kind, long runs, contractions, numbers, and names of special
    tokens, which are text here."""
    yield from (
        "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈👍🏽🇩🇪🇫🇷1️⃣ ☎️☎︎",
        "e\u0301o\u0308 " * 40,
        "\u200b\u200d\ufeff\u00ad" * 20,
    )
    yield from (
        " \t\n\r\v\f\x1c\x85\u00a0\u1680\u2003\u2028\u2029\u202f\u3000",
        "\r\n\r\n  \n\t\t\n" * 30,
        " a  b   c\n\n\nd ",
    )
    yield from (each * 3_000 for each in (" ", "\n", "a", "é", "中", "0", "=", "-", "👍", "ab", " \n"))
    yield from ("don't I'LL we'Ve they're 'S 'tis O'Neil's ’s", "3.14159 1,000,000 0x1F 1e-9 12345678901234567890")
    yield from ("<|endoftext|><|im_start|>user<|im_end|><|fim_prefix|>", "\x00\x01\x7f\ufffd\ufffe\U0010ffff", "")


def chance() -> Iterator[str]:
    """Texts by chance, the same at every run: of all characters, and of those at which a tokenizer splits."""
    dice = random.Random(20)
    for _ in range(300):
        yield "".join(chr(dice.randrange(0x20, 0x3000)) for _ in range(120))
        yield "".join(chr(dice.randrange(0x20, 0x110000)) for _ in range(60))
        yield "".join(dice.choice(" \n\t\r'.,aAbBéß中1２３ٱİǅʰ̀-_/#!sStTdD") for _ in range(150))


@pytest.mark.parametrize("encoding", [tokens.O200K, tokens.CL100K])
@pytest.mark.parametrize("corpus", [sources, definitions, alphabets, signs, chance], ids=lambda each: each.__name__)
@pytest.mark.usefixtures("offline")
def test_a_text_has_as_many_tokens_as_tiktoken_counts(encoding: str, corpus: Callable[[], Iterator[str]]) -> None:
    texts = list(corpus())
    reference = tiktoken.get_encoding(encoding)
    # Half surrogate pairs are replaced first, as they are where tokens are counted.
    expected = [len(reference.encode_ordinary(text.encode("utf-8", "replace").decode())) for text in texts]

    found = tokens.count_each(texts, encoding)

    different = [(text[:80], *pair) for text, *pair in zip(texts, found, expected, strict=True) if pair[0] != pair[1]]
    assert different == []
    assert sum(found) > 500
