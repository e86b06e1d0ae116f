"""A PostgreSQL that the tests start themselves, on loopback and with a data folder of its own: one for all tests."""

import atexit
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

PASSWORD = "swordfish:/@%"
"""Has signs that a URL must escape."""
SHARED_MEMORY = "/dev/shm"
SETTINGS = "max_connections = 30\nshared_buffers = 16MB\nautovacuum_naptime = 10min\nlc_messages = 'C'\n"


def programs() -> Path | None:
    """The folder of the newest server programs: Debian keeps them off the PATH."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("pg_ctl")
    found = [*versions, *([Path(on_path)] if on_path else [])]
    return found[-1].resolve().parent if found else None


def unprivileged() -> str | None:
    """PostgreSQL refuses to run as root; a user that may own its files instead, or None when we are not root."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names) if os.geteuid() == 0 else None


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def roomy_memory() -> str | None:
    """A folder in memory, if there is one with room: what survives a server that dies need not survive the machine."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) and shutil.disk_usage(SHARED_MEMORY).free > 1e9 else None


class Server:
    """Started and stopped by pg_ctl; `fsync` is on, as what is acknowledged must be durable."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._owner = os.getpid()
        self._user = unprivileged()
        self.folder = Path(tempfile.mkdtemp(prefix="keepkernel-postgres-", dir=roomy_memory()))
        self.port = free_port()
        password = self.folder / "password"
        password.write_text(PASSWORD)
        if self._user:
            for path in (self.folder, password):
                shutil.chown(path, self._user)
        self._run("initdb", "--username=keep", f"--pwfile={password}", "--auth=scram-sha-256", "--encoding=UTF8",
                  "--locale=C", "--no-sync", self.data)  # fmt: skip
        with (self.data / "postgresql.conf").open("a") as settings:
            settings.write(f"{SETTINGS}port = {self.port}\nlisten_addresses = '127.0.0.1'\n")
            settings.write(f"unix_socket_directories = '{self.folder}'\n")
        self.start()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _run(self, program: str, *arguments: str | Path) -> None:
        command = [self._programs / program, *arguments]
        # A server that goes on keeps what it inherited, so its output goes to a file and not to a pipe.
        with (self.folder / "output").open("a+") as output:
            ended = subprocess.run(
                command, check=False, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                user=self._user, group=self._user and pwd.getpwnam(self._user).pw_gid, extra_groups=self._user and [],
            )  # fmt: skip
        if ended.returncode:
            raise RuntimeError(f"{program} failed: {(self.folder / 'output').read_text()}")

    def start(self) -> None:
        self._run("pg_ctl", "start", "--wait", "-D", self.data, "-l", self.folder / "log")

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is how a server ends that is killed: nothing is tidied up, and the next start recovers."""
        self._run("pg_ctl", "stop", "--wait", "-m", mode, "-D", self.data)

    def remove(self) -> None:
        if os.getpid() != self._owner:
            return  # A child that was forked ends; the server goes on.
        if (self.data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self.folder)

    def url(self, schema: str = "public", password: str = PASSWORD, port: int | None = None) -> str:
        """A store of its own for each schema."""
        place = f"127.0.0.1:{port or self.port}/postgres?options=-csearch_path%3D{schema}"
        return f"postgresql://keep:{quote(password, safe='')}@{place}"

    def connect(self, schema: str = "public") -> psycopg.Connection:
        """An administrator's connection."""
        return psycopg.connect(self.url(schema), autocommit=True)

    def make(self, name: object) -> str:
        """An empty schema for whatever has this name."""
        schema = f"s{sha256(str(name).encode()).hexdigest()[:16]}"
        with self.connect() as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        return schema


@cache
def server() -> Server | None:
    found = programs()
    if found is None:
        return None
    made = Server(found)
    atexit.register(made.remove)
    return made


def started() -> Server:
    """The server of all tests; whoever asks for it is skipped where PostgreSQL is not installed."""
    running = server()
    if running is None:
        pytest.skip("PostgreSQL is not installed; on Debian: apt-get install postgresql")
    return running
