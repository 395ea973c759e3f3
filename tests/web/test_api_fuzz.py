"""Schemathesis over the whole document: no 500, every answer fits, what does not fit the document is refused."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

import dibs
from dibs.http.api import document
from tests.conftest import redis_numbers
from tests.servers import PostgresAddress, RedisAddress
from tests.web.filling import fill
from tests.web.serving import OPERATOR, bearer, served, site

# More of it: DIBS_FUZZ=100 DIBS_FUZZ_STORES=memory,sqlite,postgres-18,redis-7.0
EXAMPLES = int(os.environ.get("DIBS_FUZZ", "3"))
STORES = os.environ.get("DIBS_FUZZ_STORES", "memory,sqlite").split(",")

whole = schemathesis.openapi.from_dict(document())
brief = schemathesis.openapi.from_dict(document())
# Every corner of every schema takes most of the time: that is done on one store.
brief.config.phases.coverage.enabled = "DIBS_FUZZ" in os.environ


class Operator:
    """Every request comes with a token, but for those that try without."""

    def get(self, case: Any, context: Any) -> str:
        return bearer(OPERATOR)["Authorization"]

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": data}


whole.auth()(Operator)
brief.auth()(Operator)

some = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    derandomize="DIBS_FUZZ" not in os.environ,
    database=None,
)


@pytest.fixture(scope="module")
def first(request: pytest.FixtureRequest) -> Iterator[str]:
    with _served(STORES[0], request) as url:
        yield url


@pytest.fixture(scope="module", params=STORES[1:])
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    with _served(request.param, request) as url:
        yield url


@contextmanager
def _served(store: str, request: pytest.FixtureRequest) -> Iterator[str]:
    app = dibs.App(_url(store, request))
    with served(site(app)) as url:
        fill(app)
        yield url


def _url(store: str, request: pytest.FixtureRequest) -> str:
    kind = store.partition("-")[0]
    if kind == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path_factory').mktemp('fuzz')}/jobs.db?migrate=auto"
    if kind == "postgres":
        server: PostgresAddress = request.getfixturevalue("postgres_servers")[store]
        return f"{server.create_database(f'fuzz_{uuid4().hex}')}?migrate=auto"
    if kind == "redis":
        there: RedisAddress = request.getfixturevalue("redis_servers")[store]
        there.flush(redis_numbers()[-2])
        return there.url(redis_numbers()[-2])
    return "memory://"


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as made:
        yield made


def _check(case: Any, base: str, session: requests.Session) -> None:
    # Times before 1970, names with a space at their end, and the like fit the document, but no store.
    case.call_and_validate(base_url=base, session=session, excluded_checks=[positive_data_acceptance])


# Events never end, and have their own tests.
@whole.exclude(path="/api/events").parametrize()
@some
def test_every_answer_fits_the_document(case: Any, first: str, session: requests.Session) -> None:
    _check(case, first, session)


@brief.exclude(path="/api/events").parametrize()
@some
def test_every_answer_fits_the_document_on_other_stores(case: Any, other: str, session: requests.Session) -> None:
    _check(case, other, session)
