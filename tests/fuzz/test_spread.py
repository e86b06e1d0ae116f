"""A campaign on two worker processes over TCP; one of them is killed on the way."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from keepkernel.fuzz import spread
from keepkernel.fuzz.campaign import Campaign, Wanted
from keepkernel.fuzz.faults import CATALOGUE

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.campaign


@pytest.fixture
def cluster():
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, protocol="tcp"
    ) as cluster:
        yield cluster


def test_a_lost_worker_costs_nothing(tmp_path: Path, cluster) -> None:
    campaign = Campaign(Wanted("kernel", seconds=12, corpus=tmp_path))

    def kill() -> None:
        time.sleep(4)
        victim = next(iter(cluster.workers.values()))
        os.kill(victim.pid, signal.SIGKILL)

    threading.Thread(target=kill).start()
    spread.run(campaign, cluster.scheduler_address, lambda campaign: None)
    assert campaign.found == []
    assert campaign.troubles == []
    assert campaign.examples["kernel"] > 0
    assert len({report.seconds for report in campaign.samples}) >= 4, "both went on, and came back"


def test_what_is_found_comes_back(tmp_path: Path, cluster) -> None:
    name = next(fault.name for fault in CATALOGUE.values() if fault.level == "kernel")
    campaign = Campaign(Wanted("kernel", seconds=120, corpus=tmp_path, fault=name))
    spread.run(campaign, cluster.scheduler_address, lambda campaign: None)
    assert campaign.found
    assert campaign.write_failures()[0].parent == tmp_path / "failures"
