"""What `keepkernel run` does on a terminal: lines of what happens, one line of progress, and an orderly end."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

from ..adapters.control import Busy, ControlError
from ..book import Chapter
from ..kernel.ports import StoreError
from ..news import plural
from ..runtime import GRACE_S, Runtime, Wanted
from ..settings import CONFIG, Unusable, place_of, read_settings, require_file, store_beside
from ..story import needs_person, standing
from .base import as_typed, on_screen
from .work import DONE, NOT_FINISHED, REFUSED, WRONG_USAGE, for_store

Document = dict[str, Any]

STOPPED_AT_ONCE: Final = 130


class Screen:
    """Prints news as they come, from any thread; on a terminal with a last line that says how far it is."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._lock = threading.Lock()
        self._terminal = sys.stderr.isatty() and not as_json
        self._new = self._done = 0
        self._closed = False

    def news(self, line: Document) -> None:
        with self._lock:
            self._new += line.get("count", 0) if line["kind"] == "inputs" else 0
            self._done += line.get("count", 0) if line["kind"] == "done" else 0
            self._clear()
            self._print(
                json.dumps(line) if self._as_json else f"{line['at'][11:19]}  {line['workflow']}  {told_by(line)}"
            )
            if self._terminal:
                print(f"{plural(self._new, 'new input')}, {self._done} done …", end="", file=sys.stderr, flush=True)

    def _print(self, text: str) -> None:
        """Whoever closes the other end of a pipe wants no more, and the host ends in order."""
        if self._closed:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            self._closed = True
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - Python writes to it once more at its end.
            os.kill(os.getpid(), signal.SIGTERM)

    def say(self, text: str) -> None:
        """Something for the person at the terminal, not for a program."""
        with self._lock:
            self._clear()
            print(f"keepkernel: {text}", file=sys.stderr, flush=True)

    def end(self, workflow: str, words: str, remedies: list[str], *, needs: bool) -> None:
        """How a workflow stands when the host ends."""
        if self._as_json:
            end = {"workflow": workflow, "kind": "end", "text": words, "needs_person": needs, "remedies": remedies}
            self._print(json.dumps(end))
        else:
            self.say(f"{workflow}: {words}")
            for remedy in remedies if needs else []:
                self.say(f"  you can: {as_typed(remedy)}")

    def clear(self) -> None:
        with self._lock:
            self._clear()

    def _clear(self) -> None:
        if self._terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def told_by(line: Document) -> str:
    """Only the host tells what can be typed; what others say stays as it is."""
    text = on_screen(line["text"])
    return as_typed(text) if line["kind"] == "host" else text


class Stop(BaseException):
    """Somebody wants the host to end."""


class Stops:
    """Takes Ctrl-C and SIGTERM: raised where the host waits, and kept while it works with the store, for the driver of
    a store makes something else of them. A second one that comes meanwhile ends the process as a crash would."""

    def __init__(self) -> None:
        self.heard = 0
        self._keeping = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.heard += 1
        if not self._keeping:
            raise Stop
        if self.heard > 1:
            os._exit(STOPPED_AT_ONCE)

    @contextmanager
    def kept(self) -> Iterator[None]:
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False


def run_files(
    files: list[Path], store: str, *, until_idle: bool, config: Path | None, repair: str, as_json: bool
) -> int:
    screen = Screen(as_json)
    folder = files[0].absolute().parent
    try:
        require_file(config)
        config = config or folder / CONFIG
        settings = read_settings(config)
        place = place_of(store or store_beside(folder, settings))
        runtime = Runtime(Wanted(files, config, repair), place, settings, screen.news, screen.say)
    except (Unusable, Busy, ControlError, StoreError) as error:
        for line in str(error).splitlines():
            screen.say(line)
        return WRONG_USAGE
    stops = Stops()
    before = {number: signal.signal(number, stops) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with stops.kept():
            runtime.open()
        if stops.heard:
            raise Stop
        return work(runtime, screen, store, until_idle, stops)
    except Stop:  # Nothing has begun yet.
        return NOT_FINISHED
    except (Unusable, ControlError, StoreError) as error:
        screen.say(str(error))
        return WRONG_USAGE
    finally:
        try:
            with stops.kept():
                runtime.close()
        except StoreError as error:  # It broke under the host; what was committed is what the next start finds.
            screen.say(str(error))
        for number, handler in before.items():
            signal.signal(number, handler)


def work(runtime: Runtime, screen: Screen, store: str, until_idle: bool, stops: Stops) -> int:
    code = DONE
    runtime.listen()
    try:
        runtime.service.start()
        runtime.service.wait(until_idle=until_idle)
    except Stop:
        code = NOT_FINISHED if until_idle else DONE
        screen.say("the run in hand comes to its end; once more stops at once")
    try:
        in_order = runtime.service.stop(GRACE_S)
    except Stop:
        in_order = False
    if not in_order:
        # A thread is still at work with the store: end as a crash would, which the next start makes good.
        screen.say("stopped in the middle of a run; the next start takes it up")
        sys.stdout.flush()
        os._exit(STOPPED_AT_ONCE)
    screen.clear()
    with stops.kept():
        runtime.give_back()
        return code or told(runtime, screen, store)


def told(runtime: Runtime, screen: Screen, store: str) -> int:
    """How every workflow stands at the end, and the exit code."""
    code = DONE
    now = runtime.store.now()
    for name, lane in runtime.service.lanes.items():
        if lane.hopeless is not None:
            screen.say(f"{name}: {lane.hopeless}")
            return REFUSED
        chapter = Chapter(runtime.store, name)
        words, remedies = standing(chapter, now)
        remedies = for_store(remedies, store, runtime.place.url, proposed=True)
        if lane.standing.at == "elsewhere":
            words, remedies = lane.standing.reason, []
        needs = lane.standing.at == "elsewhere" or needs_person(chapter.state)
        screen.end(name, words, remedies, needs=needs)
        code = REFUSED if needs else code
    return code
