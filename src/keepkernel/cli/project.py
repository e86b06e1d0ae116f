"""The small project that `keepkernel init` writes: everything in it is real, and on this machine."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Final

PEOPLE: Final = ("alice", "bob", "carol", "dave", "erin")
SUBJECTS: Final = ("Leaking tap", "Broken lamp", "Lost key", "Loud neighbour")

WORKFLOW: Final = """\
// Every mail in the Maildir mail/ becomes one row of the table reports in reports.db.

export default Keep.workflow({
  name: "mail-to-reports",

  topics: { mail: {}, "row.added": {} },

  producers: {
    pollMail: {
      schedule: { interval: "1m" },
      // It looks at all mails every time, for one that comes late may stand before those that were seen. A known one
      // is published once all the same. Move old mails away now and then: one call may publish 10,000.
      handler: async (ctx) => {
        let last = "";
        for (;;) {
          const { messages } = await ctx.inbox.list({ after: last });
          if (messages.length === 0) return;
          for (const { id, from, subject, text } of messages) {
            await ctx.publish("mail", {
              messageId: id,
              title: `Email from ${from}: ${subject}`,
              payload: { from, subject, text },
            });
          }
          last = messages.at(-1).id;
        }
      },
    },
  },

  consumers: {
    fileReport: Keep.consumer({
      subscribe: ["mail"],

      async prepare(ctx) {
        const [mail] = await ctx.peek("mail", { limit: 1 });
        if (!mail) return { reservations: [], data: {} };
        return {
          reservations: [{ topic: "mail", ids: [mail.messageId] }],
          data: { message: mail.messageId, ...mail.payload },
          ui: { title: `Add a report of ${mail.payload.from}` },
        };
      },

      async mutate(ctx, prepared) {
        const { message, from, subject, text } = prepared.data;
        await ctx.reports.insert({ row: { message, sender: from, subject, text } });
      },

      async next(ctx, prepared, outcome) {
        if (outcome.status !== "applied") return;
        await ctx.publish("row.added", {
          messageId: prepared.data.message,
          title: `Row ${outcome.result.row.number} added to Reports`,
          payload: outcome.result.row,
        });
      },
    }),
  },
});
"""

CONFIG: Final = """\
# Where the workflow reads and writes. Paths count from this folder.

[connectors.inbox]
kind = "mail"
inbox = "mail"

[connectors.reports]
kind = "table"
url = "sqlite:reports.db"
table = "reports"

# What the workflow may use. Move reports.insert from grant to ask, and each row needs an approval.
[workflows.mail-to-reports]
grant = ["inbox.list", "reports.insert"]
"""

TABLE: Final = """
    CREATE TABLE reports (
        number INTEGER PRIMARY KEY,
        message TEXT NOT NULL,
        sender TEXT NOT NULL,
        subject TEXT NOT NULL,
        text TEXT NOT NULL
    )"""
"""Nothing here forbids a mail to be filed twice: that it is not is for the host to see to."""


def write_project(folder: Path) -> list[Path]:
    """Write the project into a new folder, and tell which parts it has."""
    folder.mkdir(parents=True)
    for part in ("cur", "new", "tmp"):  # A Maildir has these three.
        (folder / "mail" / part).mkdir(parents=True)
    count = len(PEOPLE) * len(SUBJECTS)
    for number in range(count):
        name = f"{1_700_000_000 + number}.{number:02d}.example"
        (folder / "mail" / "new" / name).write_bytes(bytes(mail(number)))
    with closing(sqlite3.connect(folder / "reports.db")) as database:
        database.execute(TABLE)
    (folder / "workflow.js").write_text(WORKFLOW, encoding="utf-8")
    (folder / "keepkernel.toml").write_text(CONFIG, encoding="utf-8")
    return [folder / name for name in ("mail", "reports.db", "workflow.js", "keepkernel.toml")]


def mail(number: int) -> EmailMessage:
    person, subject = PEOPLE[number % len(PEOPLE)], SUBJECTS[number // len(PEOPLE)]
    message = EmailMessage()
    message["From"] = f"{person}@example.org"
    message["To"] = "reports@example.org"
    message["Subject"] = subject
    message["Date"] = format_datetime(datetime(2026, 1, 5, 9, tzinfo=UTC) + timedelta(minutes=number))
    message["Message-ID"] = f"<{number}@example.org>"
    message.set_content(f"Dear caretaker,\n\n{subject.lower()} again, on floor {number}.\n\n{person.capitalize()}\n")
    return message
