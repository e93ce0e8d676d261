"""SearXNG: https://docs.searxng.org/dev/search_api.html"""

from __future__ import annotations

from tests.capabilities.assistant.builtin.fakes.http import Asked, FakeService, Reply, html_reply, json_reply


class SearXNG(FakeService):
    json_is_on = True

    def answer(self, asked: Asked) -> Reply:
        if (asked.method, asked.path) != ("GET", "/search"):
            return html_reply(404)
        if asked.query.get("format") != "json" or not self.json_is_on:
            return html_reply(403)
        if not asked.query.get("q"):
            return json_reply({"error": "No query"}, 400)
        results = [
            {
                "url": f"https://example.org/{number}",
                "title": f"Result  {number}",
                "content": "About\n" + asked.query["q"] + " x" * 400,
                "engine": "duckduckgo",
                "engines": ["duckduckgo", "brave"],
                "parsed_url": ["https", "example.org", f"/{number}", "", "", ""],
                "publishedDate": "2026-05-04T00:00:00" if number == 1 else None,
                "score": 1.0 / number,
                "category": "general",
            }
            for number in range(1, 31)
        ]
        hostile = [{"url": "javascript:alert(1)", "title": "No page", "content": ""}]
        return json_reply(
            {
                "query": asked.query["q"],
                "number_of_results": 30,
                "results": hostile + results,
                "answers": [{"answer": "42 is the answer", "url": "https://example.org", "template": "answer/legacy"}],
                "corrections": [],
                "infoboxes": [],
                "suggestions": ["more"],
                "unresponsive_engines": [["google", "timeout"]],
            }
        )
