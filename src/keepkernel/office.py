"""Answers what people ask, and does what they decide: beside a running host, or alone with the store."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from . import story
from .book import Book, Chapter, NotFound
from .kernel import commands as c
from .kernel.ports import Store, StoreError
from .kernel.types import Key, Publication
from .settings import Unusable
from .story import Document

TOOL: Final = re.compile(r"\w+\.\w+")
LIST_MAX: Final = 100_000

Submit = Callable[[str, c.Command], Any]
"""Takes a workflow and a command, and gives what the kernel said to it."""
Deploy = Callable[[str, str], Document]
"""Takes the text of a script and the name of its file."""


class Office:
    """One entry for every request; a request is a document, and so is the answer."""

    def __init__(self, store: Store, submit: Submit, deploy: Deploy, host: Document | None = None) -> None:
        self.book = Book(store)
        self.store = store
        self.submit = submit
        self.host = host
        self.deploy = deploy

    def answer(self, request: Document) -> Document:
        """The answer, or `{"error": …}` when the request can not be understood or carried out."""
        asked = {**QUESTIONS, **DEEDS}.get(request.get("do", ""))
        if asked is None:
            return {"error": f"there is no request {request.get('do')!r}; the host and this command differ in version"}
        try:
            return asked(self, request)
        except (NotFound, Unusable, StoreError) as error:
            return {"error": str(error)}
        except (KeyError, TypeError, AttributeError) as error:
            return {"error": f"the request is not as it must be: {type(error).__name__}: {error}"}

    # -- questions

    def status(self, request: Document) -> Document:
        chapters = self.book.chapters(request.get("workflow", ""))
        now = self.store.now()
        return {"host": self.host, "workflows": [story.status_of(chapter, now) for chapter in chapters]}

    def rows(self, what: Callable[[Chapter, int], list[Document]], request: Document) -> Document:
        limit = max(1, min(int(request.get("limit", 50)), LIST_MAX))
        chapters = self.book.chapters(request.get("workflow", ""))
        return {"rows": [row for chapter in chapters for row in what(chapter, limit)]}

    def explain(self, request: Document) -> Document:
        return story.explain(self.book, request["name"], request.get("workflow", ""), self.store.now())

    # -- deeds

    def _do(self, workflow: str, command: c.Command) -> Document:
        said = self.submit(workflow, command)
        return {"workflow": workflow, "command": c.NAMES[type(command)], **story.accepted(said.outcome)}

    def plain(self, command: Callable[[int], c.Command], request: Document) -> Document:
        return self._do(self.book.name(request.get("workflow", "")), command(0))

    def resolve(self, request: Document) -> Document:
        chapter, run = self.book.find_run(request["mutation"].rpartition("/")[2], request.get("workflow", ""))
        kind, _ = story.RESOLUTIONS[request["as"]]
        command = kind(0, run.id)
        if isinstance(command, c.AssertApplied) and request.get("result"):
            command = command._replace(result=request["result"])
        return self._do(chapter.workflow, command)

    def request(self, kind: type[c.Approve] | type[c.Reject], request: Document) -> Document:
        asking = [
            (chapter.workflow, chapter.state.error.request.digest)
            for chapter in self.book.chapters(request.get("workflow", ""))
            if chapter.state.error and chapter.state.error.request
        ]
        wanted = request.get("digest", "")
        found = [one for one in asking if one[1].startswith(wanted)]
        if not found and wanted:  # The kernel says why not.
            return self._do(self.book.name(request.get("workflow", "")), kind(0, wanted))
        if len(found) != 1:
            told = f"say which, by digest or --workflow: {', '.join(f'{w} {d[:12]}' for w, d in found)}"
            raise NotFound(told if found else "no call waits for approval; see keepkernel status")
        return self._do(found[0][0], kind(0, found[0][1]))

    def grant(self, request: Document) -> Document:
        if not TOOL.fullmatch(request["tool"]):
            raise Unusable(f"{request['tool']} is no tool; write connector.method, as in reports.insert")
        command = c.Grant(0, request["tool"], "ask" if request.get("ask") else "always")
        return self._do(self.book.name(request.get("workflow", "")), command)

    def skip(self, request: Document) -> Document:
        chapter, event = self.book.find_event(request["event"], request.get("workflow", ""))
        return self._do(chapter.workflow, c.SkipEvent(0, event.key))

    def run_now(self, request: Document) -> Document:
        return self._do(self.book.name(request.get("workflow", "")), c.RunNow(0, request["handler"]))

    def abandon(self, request: Document) -> Document:
        chapter, run = self.book.find_run(request["run"], request.get("workflow", ""))
        return self._do(chapter.workflow, c.Abandon(0, run.id))

    def publish(self, request: Document) -> Document:
        payload = request.get("payload") or "null"
        try:
            json.loads(payload)
        except ValueError as error:
            raise Unusable(f"the payload is not JSON: {error}") from None
        publication = Publication(Key(request["topic"], request["id"]), request["title"], payload)
        return self._do(self.book.name(request.get("workflow", "")), c.Publish(0, publication))

    def deploys(self, request: Document) -> Document:
        return self.deploy(request["source"], request["file"])


Request = Callable[[Office, Document], Document]


def _list(what: Callable[[Chapter, int], list[Document]]) -> Request:
    return lambda office, request: office.rows(what, request)


def _plain(command: Callable[[int], c.Command]) -> Request:
    return lambda office, request: office.plain(command, request)


QUESTIONS: Final[dict[str, Request]] = {
    "status": Office.status,
    "explain": Office.explain,
    "inputs": _list(story.inputs),
    "outputs": _list(story.outputs),
    "runs": _list(story.runs),
}
DEEDS: Final[dict[str, Request]] = {
    "resolve": Office.resolve,
    "approve": lambda office, request: office.request(c.Approve, request),
    "reject": lambda office, request: office.request(c.Reject, request),
    "grant": Office.grant,
    "skip": Office.skip,
    "run-now": Office.run_now,
    "abandon": Office.abandon,
    "publish": Office.publish,
    "deploy": Office.deploys,
    "pause": _plain(c.Pause),
    "resume": _plain(c.Resume),
    "retry": _plain(c.Retry),
    "reconnect": _plain(c.Reconnect),
    "clear-error": _plain(c.ClearError),
}

__all__ = ["DEEDS", "QUESTIONS", "Office"]
