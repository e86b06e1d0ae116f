"""Puts the parts together: a store, scripts in the sandbox, connectors, and a host for every workflow."""

import json
import os
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from . import story
from .adapters.clock import ahead_of_clock_s, wall_clock_ms
from .adapters.connectors import ConfigError, Connections
from .adapters.connectors.connections import Tell
from .adapters.control import Control
from .adapters.host import Host, Said, at_once
from .adapters.service import Service, shared
from .adapters.stores import open_store
from .book import HIDDEN, SCRIPTS, TOPIC, Chapter
from .kernel import commands as c
from .kernel.policy import Policy
from .kernel.ports import Change, Store, StoreBusy
from .kernel.respond import Answer
from .kernel.runs import permission
from .kernel.types import Accepted, CallHandler, Key, Publication, Reconcile, Repair, Send, State
from .log import Log
from .news import news as news_of
from .office import Office
from .sandbox.bridge import Tool
from .sandbox.engine import Limits, Workers
from .sandbox.handlers import Scripts
from .sandbox.loader import BadScript, Script, load
from .settings import CONFIG, Place, Settings, Unusable, is_beside, read_settings
from .story import Document

STDERR_MAX: Final = 2_000
OPEN_S: Final = 5.0
"""A store that is busy may be so with a command that is about to end."""
PATIENCE_S: Final = 60.0
GRACE_S: Final = 60.0

News = Callable[[Document], None]
Submit = Callable[[str, c.Command], Said]


def fresh_id() -> str:
    """Sixty random bits in letters and digits that nobody mistakes for one another."""
    number = secrets.randbits(60)
    return "".join("0123456789abcdefghjkmnpqrstvwxyz"[number >> shift & 31] for shift in range(0, 60, 5))


def version_of(source: str) -> str:
    return sha256(source.encode()).hexdigest()[:16]


def opened(place: Place, patience_s: float = 0) -> Store:
    """The store of a place; one that is busy is waited for, if that is wanted."""
    scheme, _, location = place.url.partition(":")
    if scheme in ("duckdb", "sqlite"):
        Path(location).parent.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + patience_s
    while True:
        try:
            return open_store(place.url)
        except StoreBusy:
            if time.monotonic() >= end:
                raise
            time.sleep(0.05)


class Undriven:
    """Stands where a host needs handlers and connectors, and only submits commands of people."""

    def call(self, state: State, effect: CallHandler) -> Answer:
        raise AssertionError("a host for commands of people drives nothing")

    def send(self, effect: Send) -> Answer:
        raise AssertionError("a host for commands of people sends nothing")

    def reconcile(self, effect: Reconcile) -> Answer:
        raise AssertionError("a host for commands of people asks nothing")


class People:
    """Submits commands that come from outside any run, from any thread: each with a host of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def submit(self, workflow: str, command: c.Command) -> Said:
        nothing = Undriven()
        host = Host(self._store, nothing, nothing, name="people", fresh_id=fresh_id, clock=wall_clock_ms)
        said = host.submit(workflow, at_once(command), leased=False)
        assert said is not None
        return said


# --- scripts -----------------------------------------------------------------------------------------


class Archive:
    """The texts of scripts by their version, which is a digest of the text."""

    def __init__(self, store: Store, people: People) -> None:
        self._store = store
        self._people = people

    def keep(self, script: Script, file: str) -> str:
        self._store.create(SCRIPTS, Policy(json_max_chars=10**8))
        if TOPIC not in self._store.load(SCRIPTS).state.topics:  # Whoever created it may have died before this.
            self._submit(c.Deploy(0, "1", (TOPIC,), ()))
        version = version_of(script.source)
        payload = json.dumps({"workflow": script.name, "file": str(Path(file).absolute()), "source": script.source})
        self._submit(c.Publish(0, Publication(Key(TOPIC, version), f"{script.name} {version}", payload)))
        return version

    def _submit(self, command: c.Command) -> None:
        said = self._people.submit(SCRIPTS, command)
        assert isinstance(said.outcome, Accepted), said.outcome

    def deploy(
        self, submit: Submit, script: Script, file: str, policy: Policy, *, ends_maintenance: bool = True
    ) -> Document:
        """Put a script in place, unless it is there already; said by a person or a repair it also ends maintenance."""
        self._store.create(script.name, policy)
        warnings = [str(warning) for warning in script.warnings]
        version = version_of(script.source)
        told = {"workflow": script.name, "command": "deploy", "version": version, "warnings": warnings}
        state = self._store.load(script.name).state
        if state.version == version and not (ends_maintenance and state.maintenance is not None):
            return {**told, "accepted": True, "unchanged": True, "rules": []}
        self.keep(script, file)
        said = submit(script.name, c.Deploy(0, version, script.topics, script.handlers))
        return {**told, "unchanged": False, **story.accepted(said.outcome)}

    def source(self, workflow: str, version: str) -> str:
        return str(self._kept(version)["source"])

    def _kept(self, version: str) -> dict[str, Any]:
        event = self._store.get(SCRIPTS, Key(TOPIC, version))
        if event is None:
            raise LookupError(f"the text of version {version} is not in the store; deploy the script again")
        kept: dict[str, Any] = json.loads(event.payload)
        return kept


class Given(NamedTuple):
    """A workflow file that was found to be in order."""

    path: Path
    script: Script


def read_files(paths: list[Path], tools: Collection[str], workers: Workers) -> list[Given]:
    """Load workflow files; everything that is wrong with any of them is told at once."""
    problems: list[str] = []
    given: list[Given] = []
    for path in paths:
        try:
            given.append(Given(path, checked(path.read_text(encoding="utf-8"), str(path), tools, workers)))
        except FileNotFoundError:
            problems.append(f"{path}: there is no such file")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
        except UnicodeDecodeError:
            problems.append(f"{path}: it is not a text in UTF-8")
        except Unusable as unusable:
            problems += unusable.problems
    names = [one.script.name for one in given]
    problems += [
        f"two files are called {name}; rename one" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise Unusable(*problems)
    return given


def connections_of(config: Path, tell: Tell) -> Connections:
    if not config.exists():
        return Connections({}, tell=tell)
    try:
        return Connections.from_config(config, tell=tell)
    except ConfigError as error:
        raise Unusable(str(error)) from None


def checked(source: str, file: str, tools: Collection[str], workers: Workers) -> Script:
    """The script of a file that is in order."""
    try:
        return load(source, tools, workers)
    except BadScript as bad:
        raise Unusable(*(f"{file}: {problem}" for problem in bad.problems)) from None


def checked_apart(source: str, file: str, tools: Collection[str], limits: Limits) -> Script:
    """The same with a worker that nobody else uses."""
    with closing(Workers(limits)) as workers:
        return checked(source, file, tools, workers)


class ToolsOf:
    """The connectors as the sandbox knows them."""

    def __init__(self, connections: Connections) -> None:
        self._tools = {name: Tool(*tool) for name, tool in connections.catalogue().items()}
        self.read = connections.read

    def catalogue(self) -> Mapping[str, Tool]:
        return self._tools


# --- a host that runs --------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """What `keepkernel run` was asked for."""

    files: list[Path]
    config: Path
    repair: str = ""


class Runtime:
    """A running host: its store, its workflows, and its control socket."""

    def __init__(
        self, wanted: Wanted, place: Place, settings: Settings, news: News, trouble: Callable[[str], None]
    ) -> None:
        self.place = place
        self.settings = settings
        self.news = news
        self.log = Log(place.log, trouble)
        self.repair_command = wanted.repair or settings.host.repair
        self.connections = connections_of(wanted.config, self.tell_tool)
        self.tools = ToolsOf(self.connections)
        self.workers = [Workers(settings.limits)]
        self.control: Control | None = None
        self._raw: Store | None = None
        self._brought_up: set[str] = set()
        try:
            self.given = read_files(wanted.files, self.tools.catalogue(), self.workers[0])
            self._require_tools(wanted.config)
            self.control = Control(place.socket) if place.socket else None
        except BaseException:
            self.close()
            raise

    def _require_tools(self, config: Path) -> None:
        tools = self.connections.catalogue()
        problems = [
            f"{config}: workflows.{name} grants {tool}, which no connector provides; there are {', '.join(tools)}"
            for name in (one.script.name for one in self.given)
            for tool, _ in self.settings.of(name).modes()
            if tool not in tools
        ]
        if problems:
            raise Unusable(*problems)

    def open(self) -> None:
        """Open the store, and deploy what is new."""
        self._raw = opened(self.place, OPEN_S)
        self.store = shared(self._raw, self._watch)
        self.people = People(self.store)
        self.archive = Archive(self.store, self.people)
        self.files = files = {one.script.name: one for one in self.given}
        # Each thread has its own, and nobody waits for another's.
        self.workers += [Workers(self.settings.limits) for _ in self.given[1:]]
        self.hosts = {one.script.name: self._host(one, own) for one, own in zip(self.given, self.workers, strict=True)}
        self.service = Service(self.hosts, self.people.submit, self.tell, self._bring_up)
        self._tell_time()
        for name in files:
            self._prepare(name)

    def listen(self) -> None:
        """Let people ask and decide. Before the workflows run, so that nothing has begun where this is not possible."""
        if self.control is not None:
            host = {"pid": os.getpid(), "workflows": list(self.hosts)}
            office = Office(self.store, self._submit, self._deploy, self._tools, self.place.log, host)
            self.control.listen(office.answer)

    def _host(self, one: Given, workers: Workers) -> Host:
        handlers = Scripts(workers, self.archive.source, self.store, self.tools, self._logged)
        name = self.control.name if self.control is not None else "alone"  # Nobody else finds a store in memory.
        repair = Repairs(self, one).repair if self.repair_command else None
        parts = (self.store, handlers, self.connections)
        return Host(*parts, name=name, fresh_id=fresh_id, clock=wall_clock_ms, repair=repair)

    def _tell_time(self) -> None:
        """The time of a store never goes back; after a clock that was ahead, nothing is due for as long."""
        ahead_s = ahead_of_clock_s(self.store.now())
        for name in self.files if ahead_s else ():
            self.tell(name, f"the store's time is {ahead_s} s ahead of this machine's clock, and waits for it")

    def _prepare(self, name: str) -> None:
        self.store.create(name, self.settings.policy(name))
        if self.hosts[name].start(name):
            self._bring_up(name)
        else:
            self.tell(name, "another host drives it; this one waits")

    def _bring_up(self, name: str) -> None:
        """Deploy and grant what the files say, once: as soon as this host drives the workflow."""
        if name in self._brought_up:
            return
        one = self.files[name]
        # A start is no judgement on a script that failed: what stands still goes on standing still.
        policy = self.settings.policy(name)
        told = self.archive.deploy(self.people.submit, one.script, str(one.path), policy, ends_maintenance=False)
        if not told["accepted"]:
            raise Unusable(
                f"{one.path}: it can not be deployed: {told['refused']['why']} ({told['refused']['detail']})"
            )
        for warning in told["warnings"]:
            self.tell(name, f"{one.path}: {warning}")
        state = self.store.load(name).state
        for tool, mode in self.settings.of(name).modes():
            if permission(state, tool) != mode:
                self.people.submit(name, c.Grant(0, tool, mode))
        if state.status == "ready":
            self.people.submit(name, c.Resume(0))
        elif state.status == "paused":
            self.tell(name, f"it is paused; go on with keepkernel resume --workflow {name}")
        self._brought_up.add(name)

    def give_back(self) -> None:
        """Let other hosts have the workflows at once."""
        for name, host in self.hosts.items():
            lease = self.store.lease(name, host.name, 1)
            if lease is not None:
                self.store.release(lease)

    def close(self) -> None:
        with ExitStack() as ends:  # All of them, whatever breaks; the last one first.
            for workers in self.workers:
                ends.callback(workers.close)
            ends.callback(self.connections.close)
            if self._raw is not None:  # Under its lock: whoever still asks is answered before it closes, or refused.
                ends.callback(self.store.close)
            if self.control is not None:
                ends.callback(self.control.close)

    # -- what others ask for

    def _submit(self, workflow: str, command: c.Command) -> Said:
        return self.service.submit(workflow, command, PATIENCE_S)

    def _deploy(self, source: str, file: str) -> Document:
        script = checked_apart(source, file, self.tools.catalogue(), self.settings.limits)
        return self.archive.deploy(self._submit, script, file, self.settings.policy(script.name))

    def _tools(self, workflow: str) -> Collection[str]:
        return self.tools.catalogue()

    # -- what is told

    def _watch(self, change: Change) -> None:
        if not change.workflow.startswith(HIDDEN):
            self.service.wake(change.workflow)
            for line in news_of(change):
                self.tell_all(line)

    def tell_all(self, line: Document) -> None:
        line = {**line, "text": self.connections.masked(line["text"])}
        self.log.write(line)
        self.news(line)

    def tell(self, workflow: str, text: str) -> None:
        self.tell_all({"at": story.when(wall_clock_ms()), "workflow": workflow, "kind": "host", "text": text})

    def tell_tool(self, tool: str, text: str, key: str) -> None:
        """What a connector has to say; of a change by the key of its call, which names workflow and run (MUT-004)."""
        workflow, _, run = key.rpartition("/")
        at = story.when(wall_clock_ms())
        line = {"at": at, "workflow": workflow, "kind": "tool", "run": run, "text": f"{tool}: {text}"}
        self.log.write(line)
        if workflow:
            self.news({**line, "text": line["text"].partition("\n")[0]})

    def _logged(self, workflow: str, run: str, lines: tuple[str, ...]) -> None:
        for text in lines:
            at = story.when(wall_clock_ms())
            self.tell_all({"at": at, "workflow": workflow, "kind": "script", "run": run, "text": text})


class Repairs:
    """Hands a script that failed to a command that may mend its file; the kernel counts how often."""

    def __init__(self, runtime: Runtime, one: Given) -> None:
        self.runtime = runtime
        self.one = one

    def repair(self, work: Repair) -> None:
        """Call the command with the evidence, and deploy what it left; whoever can not be helped is blocked."""
        name = self.one.script.name
        trouble = self._call(name, work)
        if not trouble:
            trouble = self._take_up(name)
        if trouble:
            self.runtime.tell(name, f"the repair did not help: {trouble}")
            self.runtime.people.submit(name, c.BlockWorkflow(0, f"the repair did not help: {trouble}"))

    def _call(self, name: str, work: Repair) -> str:
        evidence = json.dumps(self.evidence(name, work))
        self.runtime.tell(name, f"calls {self.runtime.repair_command} to mend {work.handler}")
        seconds = self.runtime.settings.host.repair_seconds
        try:
            command = subprocess.Popen(
                shlex.split(self.runtime.repair_command),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self.one.path.absolute().parent,
                start_new_session=True,  # Ctrl-C is for the host: a repair that it cut short would block the workflow.
            )
        except OSError as error:
            return f"the repair command does not start: {error}"
        with command:
            try:
                _, errors = command.communicate(self.runtime.connections.masked(evidence).encode(), seconds)
            except subprocess.TimeoutExpired:
                os.killpg(command.pid, signal.SIGKILL)  # With all that it started, or that would write the file later.
                return f"the repair command took more than {seconds} s"
        said = self.runtime.connections.masked(errors.decode(errors="replace").strip())[-STDERR_MAX:]
        return f"the repair command ended with {command.returncode}: {said}" if command.returncode else ""

    def _take_up(self, name: str) -> str:
        """Deploy the file as it is now; one that was left as it was gets another try (WORK-005)."""
        try:
            source = self.one.path.read_text(encoding="utf-8")
            tools, limits = self.runtime.tools.catalogue(), self.runtime.settings.limits
            script = checked_apart(source, str(self.one.path), tools, limits)
        except (OSError, UnicodeDecodeError, Unusable) as error:
            return f"the file can not be used: {error}"
        if script.name != name:
            return f"the file is called {script.name} now"
        if self.runtime.store.load(name).state.version == version_of(source):
            self.runtime.people.submit(name, c.ExitMaintenance(0))
            return ""
        policy = self.runtime.settings.policy(name)
        told = self.runtime.archive.deploy(self.runtime.people.submit, script, str(self.one.path), policy)
        return "" if told["accepted"] else str(told["refused"])

    def evidence(self, name: str, work: Repair) -> Document:
        chapter = Chapter(self.runtime.store, name)
        run = chapter.run(work.run)
        state = chapter.state
        row = next((h for h in state.handlers if h.declared.name == work.handler), None)
        return {
            "workflow": name,
            "file": str(self.one.path.absolute()),
            "version": state.version,
            "script": self.runtime.archive.source(name, run.version if run else state.version),
            "handler": work.handler,
            "error": work.message,
            "failures": row.logic_failures if row else 0,
            "run": story.run_row(chapter, run) if run else None,
            "trace": story.explain_run(chapter, run, self.runtime.store.now())["story"] if run else [],
            "tools": self.runtime.connections.documents(),
        }


# --- without a host ----------------------------------------------------------------------------------


def tools_of(config: Path) -> Collection[str]:
    with connections_of(config, lambda tool, text, key: None) as connections:
        return connections.catalogue()


def checked_alone(source: str, file: str, config: Path | None = None) -> tuple[Script, Policy]:
    """The script of a file that is in order, and its numbers, by the settings beside it."""
    path = config or Path(file).absolute().parent / CONFIG
    settings = read_settings(path)
    script = checked_apart(source, file, tools_of(path), settings.limits)
    return script, settings.policy(script.name)


@contextmanager
def office_on(place: Place, config: Path | None = None) -> Iterator[Office]:
    """The office of a store that no host runs on."""
    store = opened(place)
    people = People(store)

    def deploy_here(source: str, file: str) -> Document:
        script, policy = checked_alone(source, file, config)
        return Archive(store, people).deploy(people.submit, script, file, policy)

    def tools_here(workflow: str) -> Collection[str] | None:
        file = Chapter(store, workflow).file()
        path = file.parent / CONFIG if file is not None and is_beside(place.url, file) else None
        try:
            return tools_of(path) if path is not None and path.exists() else None
        except Unusable:  # Its secrets are elsewhere, perhaps; whoever runs it is told.
            return None

    try:
        yield Office(store, people.submit, deploy_here, tools_here, place.log)
    finally:
        store.close()
