"""Answers what people ask, and does what they decide: beside a running host, or alone with the store."""

import re
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from . import story
from .adapters.clock import ahead_of_clock_s
from .book import Book, Chapter, NotFound
from .kernel import commands as c
from .kernel.ports import Store, StoreError
from .kernel.types import Key, Publication
from .sandbox import border
from .sandbox.loader import suggestion
from .settings import Unusable
from .story import Document

TOOL: Final = re.compile(r"\w+\.\w+")
LIST_MAX: Final = 100_000

Submit = Callable[[str, c.Command], Any]
"""Takes a workflow and a command, and gives what the kernel said to it."""
Deploy = Callable[[str, str], Document]
"""Takes the text of a script and the name of its file."""
Tools = Callable[[str], Collection[str] | None]
"""Takes a workflow, and gives the names of the tools that there are; None where nobody knows."""


def text(request: Document, name: str) -> str:
    """A field of a request; one that is left out is empty, which no id is."""
    value = request.get(name, "")
    if not isinstance(value, str):
        raise Unusable(f"{name} of a request is a text")
    return value


def json_text(what: str, value: str) -> str:
    """JSON that a script can be given as it is."""
    try:
        border.loads(value)
    except ValueError as error:
        raise Unusable(f"{what} is not JSON that a script can be given: {error}") from None
    return value


class Office:
    """One entry for every request; a request is a document, and so is the answer."""

    def __init__(
        self,
        store: Store,
        submit: Submit,
        deploy: Deploy,
        tools: Tools,
        log: Path | None,
        host: Document | None = None,
    ) -> None:
        self.book = Book(store)
        self.log = log
        self.store = store
        self.submit = submit
        self.host = host
        self.deploy = deploy
        self.tools = tools

    def answer(self, request: Document) -> Document:
        """The answer, or `{"error": …}` when the request can not be understood or carried out."""
        try:
            name = text(request, "do")
            asked = QUESTIONS.get(name) or DEEDS.get(name)
            if asked is None:
                raise Unusable(f"there is no request {name!r}; the host and this command differ in version")
            return asked(self, request)
        except (NotFound, Unusable, StoreError) as error:
            return {"error": str(error)}

    # -- questions

    def status(self, request: Document) -> Document:
        chapters = self.book.chapters(text(request, "workflow"))
        now = self.store.now()
        workflows = [story.status_of(chapter, now) for chapter in chapters]
        return {"host": self.host, "ahead_s": ahead_of_clock_s(now), "workflows": workflows}

    def rows(self, what: Callable[[Chapter, int], list[Document]], request: Document) -> Document:
        limit = request.get("limit", 50)
        if type(limit) is not int or not 0 < limit <= LIST_MAX:
            raise Unusable(f"a limit is a number from 1 to {LIST_MAX}")
        chapters = self.book.chapters(text(request, "workflow"))
        return {"rows": [row for chapter in chapters for row in what(chapter, limit)]}

    def explain(self, request: Document) -> Document:
        return story.explain(self.book, text(request, "name"), text(request, "workflow"), self.store.now())

    # -- deeds

    def _do(self, workflow: str, command: c.Command) -> Document:
        said = self.submit(workflow, command)
        told = story.accepted(said.outcome)
        document = {"workflow": workflow, "command": c.NAMES[type(command)], "host": self.host, **told}
        return self._stands(document, isinstance(command, c.Retry))

    def _stands(self, document: Document, over_errors: bool = False) -> Document:
        """Whoever is refused is told how the workflow stands; and who may take for done what an error still stops."""
        stopped = over_errors and self.store.load(document["workflow"]).state.error is not None
        if document["accepted"] and not stopped:
            return document
        words, remedies = story.standing(Chapter(self.store, document["workflow"]), self.store.now())
        return {**document, "standing": words, "remedies": remedies}

    def plain(self, command: Callable[[int], c.Command], request: Document) -> Document:
        return self._do(self.book.name(text(request, "workflow")), command(0))

    def resolve(self, request: Document) -> Document:
        chapter, run = self.book.find_run(text(request, "mutation").rpartition("/")[2], text(request, "workflow"))
        if text(request, "as") not in story.RESOLUTIONS:
            raise Unusable(f"it is resolved as one of {', '.join(story.RESOLUTIONS)}")
        kind, _ = story.RESOLUTIONS[request["as"]]
        command = kind(0, run.id)
        if isinstance(command, c.AssertApplied) and text(request, "result"):
            command = command._replace(result=json_text("the result", request["result"]))
        return self._do(chapter.workflow, command)

    def request(self, kind: type[c.Approve] | type[c.Reject], request: Document) -> Document:
        asking = [
            (chapter.workflow, chapter.state.error.request.digest)
            for chapter in self.book.chapters(text(request, "workflow"))
            if chapter.state.error and chapter.state.error.request
        ]
        wanted = text(request, "digest")
        found = [one for one in asking if one[1].startswith(wanted)]
        if not found and wanted:  # The kernel says why not.
            return self._do(self.book.name(text(request, "workflow")), kind(0, wanted))
        if len(found) != 1:
            told = f"say which, by digest or --workflow: {', '.join(f'{w} {d[:12]}' for w, d in found)}"
            raise NotFound(told if found else "no call waits for approval; see keepkernel status")
        return self._do(found[0][0], kind(0, found[0][1]))

    def grant(self, request: Document) -> Document:
        tool, workflow = text(request, "tool"), self.book.name(text(request, "workflow"))
        if not TOOL.fullmatch(tool):
            raise Unusable(f"{tool} is no tool; write connector.method, as in reports.insert")
        tools = self.tools(workflow)
        told = self._do(workflow, c.Grant(0, tool, "ask" if request.get("ask") else "always"))
        if tools is None or tool in tools:
            return {**told, "warnings": []}
        remedy = suggestion(tool, tools, "" if tools else "Configure one in keepkernel.toml")
        return {**told, "warnings": [f"no connector provides {tool}. {remedy}"]}

    def skip(self, request: Document) -> Document:
        chapter, event = self.book.find_event(text(request, "event"), text(request, "workflow"))
        return self._do(chapter.workflow, c.SkipEvent(0, event.key))

    def run_now(self, request: Document) -> Document:
        return self._do(self.book.name(text(request, "workflow")), c.RunNow(0, text(request, "handler")))

    def abandon(self, request: Document) -> Document:
        chapter, run = self.book.find_run(text(request, "run"), text(request, "workflow"))
        return self._do(chapter.workflow, c.Abandon(0, run.id))

    def publish(self, request: Document) -> Document:
        payload = json_text("the payload", text(request, "payload") or "null")
        publication = Publication(Key(text(request, "topic"), text(request, "id")), text(request, "title"), payload)
        return self._do(self.book.name(text(request, "workflow")), c.Publish(0, publication))

    def deploys(self, request: Document) -> Document:
        return self._stands(self.deploy(text(request, "source"), text(request, "file")))


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
