"""Brings the fixtures of the suite along; the labs are named on the command line or by another conftest."""

import pytest

from dibs.testing.plugin import LabFactory


def pytest_dibs_labs(config: pytest.Config) -> dict[str, LabFactory]:
    return {}
