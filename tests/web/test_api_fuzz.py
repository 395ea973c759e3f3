"""Schemathesis over the whole document: no 500, every answer fits, what does not fit the document is refused."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

import dibs
from dibs.http.api import document
from tests.web.filling import fill
from tests.web.serving import OPERATOR, bearer, served, site

EXAMPLES = int(os.environ.get("DIBS_FUZZ", "6"))
STORES = os.environ.get("DIBS_FUZZ_STORES", "memory,sqlite").split(",")

schema = schemathesis.openapi.from_dict(document())


@pytest.fixture(scope="module", params=STORES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    app = dibs.App(_url(request.param, tmp_path_factory.mktemp("fuzz")))
    with served(site(app)) as url:
        fill(app, url)
        yield url


def _url(store: str, folder: Path) -> str:
    return {"memory": "memory://", "sqlite": f"sqlite:///{folder}/jobs.db?migrate=auto"}.get(store, store)


# Events never end, and have their own tests. Times before 1970 fit the document, but no store.
@schema.exclude(path="/api/events").parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize="DIBS_FUZZ" not in os.environ,
    database=None,
)
def test_every_answer_fits_the_document(case: Any, base: str, session: requests.Session) -> None:
    case.call_and_validate(
        base_url=base, headers=bearer(OPERATOR), session=session, excluded_checks=[positive_data_acceptance]
    )


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made
