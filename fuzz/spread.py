"""The same campaign on more than one machine, with Dask distributed as the engine.

Each task is a short stretch of lives with a number of its own. A worker that is lost costs nothing: its task is done
again elsewhere, and comes to the same, because the number is all that a stretch is made of. What is found comes back
and is written to the corpus of whoever started the campaign.
"""

import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

from .campaign import PROFILES, Campaign, Found, Report, Wanted, Worker

STRETCH_SECONDS: Final = 3.0
RETRIES: Final = 10


def stretch(wanted: Wanted, number: int, offset: int) -> list[Report | Found]:
    """What one task sees; it needs nothing from its machine, and leaves nothing there."""
    told: list[Report | Found] = []
    with tempfile.TemporaryDirectory(prefix="keepkernel-") as folder:
        Worker(number, wanted._replace(corpus=Path(folder)), offset, told.append).work()
    return told


def run(campaign: Campaign, address: str, show: Callable[[Campaign], None]) -> None:
    """Until time is over, or a stretch has found something."""
    engine: Any = import_module("distributed")  # An extra, which brings no types.
    wanted = campaign.wanted
    until = time.monotonic() + (wanted.seconds or PROFILES[wanted.profile].seconds)
    offset = campaign.memory["lives"].get(str(wanted.seed), 0)
    numbers = count()
    with engine.Client(address, timeout=30) as client:
        threads = max(sum(client.nthreads().values()), 1)

        def submit() -> Any:
            task = wanted._replace(seconds=STRETCH_SECONDS)
            return client.submit(stretch, task, next(numbers), offset, pure=False, retries=RETRIES)

        waiting = engine.as_completed([submit() for _ in range(2 * threads)], with_results=True)
        try:
            for _, told in waiting:
                for one in told:
                    campaign.add(one)
                show(campaign)
                if campaign.found:
                    break
                if time.monotonic() < until:
                    waiting.add(submit())
        except KeyboardInterrupt:
            campaign.stopped = True
        client.cancel(list(waiting.futures))
    campaign.remember(offset)
