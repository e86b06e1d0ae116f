"""The fixed walks that the tests of this folder share: the same commands and states in every run.

They are made once, so a test asks `step` again for what it judges; mutation testing then knows that it does.
"""

from random import Random

import pytest
from walks import Tried, walk

WALKS, TURNS = 80, 120


@pytest.fixture(scope="session")
def tries() -> list[Tried]:
    return [tried for seed in range(WALKS) for tried in walk(Random(seed), TURNS)]
