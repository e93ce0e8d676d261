"""arXiv (https://info.arxiv.org/help/api/user-manual.html), MediaWiki's action API, DuckDuckGo's instant answers."""

from __future__ import annotations

import json
from typing import Any, ClassVar
from xml.sax.saxutils import escape

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, html_reply, json_reply

ATTENTION = ("1706.03762v7", "Attention Is All You Need", "The dominant sequence\n  transduction models & more.")
CAPSULES = ("1710.09829v2", "Dynamic Routing Between Capsules", "A capsule is a group of neurons.")


class ArXiv(FakeService):
    def answer(self, asked: Asked) -> Reply:
        if asked.path != "/api/query":
            return html_reply(404)
        query = asked.query.get("search_query", "")
        if "malformed" in query:
            return self.feed([("http://arxiv.org/api/errors#x", "Error", "incorrect id format for malformed")], 400)
        wanted = asked.query.get("id_list")
        words = [word.partition(":")[2].lower() for word in query.split(" AND ")]
        found = [
            paper
            for paper in (ATTENTION, CAPSULES)
            if (paper[0].startswith(wanted) if wanted else all(word in paper[1].lower() for word in words))
        ]
        return self.feed([(f"http://arxiv.org/abs/{number}", title, text) for number, title, text in found])

    def feed(self, papers: list[tuple[str, str, str]], status: int = 200) -> Reply:
        entries = "".join(
            f"""<entry><id>{address}</id><updated>2023-08-02T00:41:18Z</updated><published>2017-06-12T17:57:34Z
</published><title>{title}</title><summary>  {escape(text)}
</summary><author><name>Ashish Vaswani</name><arxiv:affiliation>Google</arxiv:affiliation></author>
<author><name>Noam Shazeer</name></author>
<link href="{address}" rel="alternate" type="text/html"/>
<link title="pdf" href="{address.replace("/abs/", "/pdf/")}" rel="related" type="application/pdf"/>
<arxiv:primary_category term="cs.CL" scheme="http://arxiv.org/schemas/atom"/>
<category term="cs.CL" scheme="http://arxiv.org/schemas/atom"/></entry>"""
            for address, title, text in papers
        )
        document = f"""<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:arxiv="http://arxiv.org/schemas/atom">
<title type="html">ArXiv Query</title><id>http://arxiv.org/api/cHxbiOdZaP56ODnBPIenZhzg5f8</id>
<opensearch:totalResults xmlns:opensearch="http://a9.com/-/spec/opensearch/1.1/">1</opensearch:totalResults>
{entries}</feed>"""
        return Reply(status, document.encode(), {"Content-Type": "application/atom+xml; charset=UTF-8"})


class Wikipedia(FakeService):
    texts: ClassVar = {"Lion": "The lion (Panthera leo) is a large cat.\n\n\n== Taxonomy ==\nFelis leo was its name."}

    def answer(self, asked: Asked) -> Reply:
        query = asked.query
        if asked.path != "/w/api.php" or query.get("action") != "query" or query.get("formatversion") != "2":
            return html_reply(404)
        if query.get("list") == "search":
            return self.search(query["srsearch"], int(query["srlimit"]))
        title = {"Panthera leo": "Lion"}.get(query["titles"], query["titles"])
        if title not in self.texts:
            return json_reply({"batchcomplete": True, "query": {"pages": [{"title": title, "missing": True}]}})
        text = self.texts[title]
        extract = text.partition("\n\n")[0] if query.get("exintro") else text
        page = {"pageid": 36896, "ns": 0, "title": title, "extract": extract, "fullurl": f"https://x.test/wiki/{title}"}
        return json_reply({"batchcomplete": True, "query": {"pages": [page]}})

    def search(self, words: str, limit: int) -> Reply:
        if words == "bad":
            return json_reply({"error": {"code": "internal_api_error", "info": "Search is broken."}})
        snippet = f'The <span class="searchmatch">{words}</span> &quot;king&quot; &amp; more'
        rows: list[dict[str, Any]] = [
            {"ns": 0, "title": f"Lion {number}", "pageid": number, "size": 1, "wordcount": 1, "snippet": snippet}
            for number in range(1, 10)
        ]
        return json_reply({"batchcomplete": True, "continue": {"sroffset": limit}, "query": {"search": rows[:limit]}})


class DuckDuckGo(FakeService):
    """Answers with the status and the content type that the real one has."""

    def answer(self, asked: Asked) -> Reply:
        if asked.path != "/" or asked.query.get("format") != "json":
            return html_reply()
        value: dict[str, Any] = dict.fromkeys(
            ["Abstract", "AbstractSource", "AbstractText", "AbstractURL", "Answer", "AnswerType", "Definition"], ""
        ) | {"RelatedTopics": [], "Results": [], "Type": ""}
        if asked.query["q"] == "lion":
            topic = {
                "FirstURL": "https://duckduckgo.com/Tiger",
                "Icon": {"URL": ""},
                "Result": "",
                "Text": "Tiger A cat.",
            }
            value |= {
                "Heading": "Lion",
                "AbstractText": "A large cat.",
                "AbstractSource": "Wikipedia",
                "AbstractURL": "https://en.wikipedia.org/wiki/Lion",
                "RelatedTopics": [topic, {"Name": "Film", "Topics": [topic | {"Text": "Lion A film."}]}],
                "Type": "A",
            }
        if asked.query["q"] == "2+2":
            value |= {"Answer": {"from": "calculator", "result": ""}, "AnswerType": "calc"}
        return Reply(202, json.dumps(value).encode(), {"Content-Type": "application/x-javascript"})
