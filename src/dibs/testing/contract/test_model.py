"""The same answer everywhere: thousands of random operations, on the store and on the model."""

from collections.abc import Callable

import pytest

from dibs.testing.labs.base import Lab
from dibs.testing.machine import agree


@pytest.mark.timeout(1_800)
def test_the_store_answers_as_the_model_does(dibs_lab_factory: Callable[[], Lab]) -> None:
    agree(dibs_lab_factory)
