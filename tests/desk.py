"""A folder with a workflow, its settings, and a connector that does as the test says."""

import json
import sys
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from keepkernel.cli import app

CONNECTOR = '''
"""A desk: lines are appended to a file. What the file `mode` says goes wrong."""
from pathlib import Path
from typing import Annotated

from keepkernel.adapters.connectors import Call, Connector, NotDone, Refused, Shape, changes, reads, reconciles
from keepkernel.adapters.connectors.base import Place
from keepkernel.kernel.respond import AskAgain, DidNotHappen


class Line(Shape):
    text: str
    token: str = ""


class Written(Shape):
    line: int


class Nothing(Shape):
    pass


class Told(Shape):
    mode: str


class Desk(Connector):
    folder: Annotated[Path, Place]

    def mode(self) -> str:
        path = self.folder / "mode"
        return path.read_text().strip() if path.exists() else ""

    def lines(self) -> list[str]:
        path = self.folder / "desk.txt"
        return path.read_text().splitlines() if path.exists() else []

    @reads
    def look(self, params: Nothing) -> Told:
        """What is going on."""
        return Told(mode=self.mode())

    @changes
    def append(self, params: Line, call: Call) -> Written:
        """Append a line."""
        if self.mode() == "locked":
            raise NotDone("auth", "the desk is locked")
        if self.mode() == "refused":
            raise Refused("refused", "no more lines")
        if self.mode() == "late":
            raise NotDone("network", "nobody is at the desk")
        if self.mode() != "lost":
            with (self.folder / "desk.txt").open("a") as file:
                file.write(f"{call.key} {params.text}\\n")
        if self.mode() in ("lost", "lost after"):
            raise RuntimeError("the line is dead")
        return Written(line=len(self.lines()))

    @reconciles("append")
    def find(self, params: Line, call: Call) -> Written | AskAgain | DidNotHappen:
        if self.mode() in ("lost", "lost after"):
            return AskAgain()
        keys = [line.split()[0] for line in self.lines()]
        return Written(line=keys.index(call.key) + 1) if call.key in keys else DidNotHappen(voided=True)

    @changes
    def shout(self, params: Line, call: Call) -> Written:
        """Nobody can be asked whether it was heard."""
        if self.mode() == "lost":
            raise RuntimeError("the line is dead")
        with (self.folder / "desk.txt").open("a") as file:
            file.write(f"{call.key} {params.text}\\n")
        return Written(line=len(self.lines()))
'''

WORKFLOW = """
export default Keep.workflow({
  name: "desk-work",
  topics: { mail: {}, done: {} },
  consumers: {
    file: Keep.consumer({
      subscribe: ["mail"],
      async prepare(ctx) {
        const [mail] = await ctx.peek("mail", { limit: 1 });
        if (!mail) return { reservations: [], data: {} };
        console.log(`looks at ${mail.messageId}`);
        if (mail.payload?.broken) throw new Error("can not read it");
        return {
          reservations: [{ topic: "mail", ids: [mail.messageId] }],
          data: { id: mail.messageId },
          ui: { title: `Write down ${mail.messageId}` },
        };
      },
      async mutate(ctx, prepared) {
        await ctx.desk.append({ text: prepared.data.id, token: "t-123456" });
      },
      async next(ctx, prepared, outcome) {
        const what = outcome.status === "applied" ? `Line ${outcome.result?.line} written` : `Nothing written`;
        if (prepared.data.id) await ctx.publish("done", { messageId: prepared.data.id, title: what });
      },
    }),
  },
});
"""

POLICY = "backoff_base_ms = 1, transient_retries = 2, reconcile_base_ms = 1, reconcile_attempts = 2"
CONFIG = f"""
[host]
store = "sqlite:work.db"

[connectors.desk]
kind = "desk.py:Desk"
folder = "."

[workflows.desk-work]
grant = ["desk.append", "desk.look", "desk.shout"]
policy = {{{POLICY}}}
"""


class Project:
    """A folder in which the command line is used, in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "workflow.js"
        self.config = folder / "keepkernel.toml"
        self.store = f"sqlite:{folder / 'work.db'}"

    def write(self) -> None:
        (self.folder / "desk.py").write_text(CONNECTOR)
        self.config.write_text(CONFIG)
        self.file.write_text(WORKFLOW)

    def keep(self, *words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(app, list(words), prog_name="keepkernel")
        shown = f"{result.output}{result.stderr}"
        assert result.exception is None or isinstance(result.exception, SystemExit), shown
        assert result.exit_code == code, shown
        return result

    def ask(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.keep(*words, "--store", self.store, "--json", code=code).stdout)

    def run(self, code: int = 0, *words: str) -> Result:
        return self.keep("run", str(self.file), "--until-idle", *words, code=code)

    def publish(self, name: str, payload: Any = None) -> None:
        self.ask("publish", "mail", name, "--title", f"Mail {name}", "--payload", json.dumps(payload))

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def lines(self) -> list[str]:
        path = self.folder / "desk.txt"
        return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []

    def grant_less(self) -> None:
        """The settings grant the desk's main tool no more."""
        self.config.write_text(self.config.read_text().replace('grant = ["desk.append", ', "grant = ["))

    def status(self, code: int = 0) -> Any:
        (one,) = self.ask("status", code=code)["workflows"]
        return one


KEEPKERNEL = (sys.executable, "-m", "keepkernel")
