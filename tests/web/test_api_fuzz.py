"""Schemathesis over the whole document: no 500, every answer fits, what does not fit the document is refused."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, settings

import dibs
from dibs.http.api import document
from dibs.http.service.data import Event
from tests.conftest import redis_numbers
from tests.servers import PostgresAddress, RedisAddress
from tests.web.filling import fill
from tests.web.serving import OPERATOR, bearer, served, site

# More of it: DIBS_FUZZ=100 DIBS_FUZZ_STORES=memory,sqlite,postgres-18,redis-7.0
EXAMPLES = int(os.environ.get("DIBS_FUZZ", "3"))
STORES = os.environ.get("DIBS_FUZZ_STORES", "memory,sqlite").split(",")

whole = schemathesis.openapi.from_dict(document())
brief = schemathesis.openapi.from_dict(document())
for schema in (whole, brief):
    # What fits the document is never called unfit for it (400). A store may refuse it (422), and says why: times before
    # 1970, names with a space at their end, and the like fit the document, but no store.
    schema.config.checks.positive_data_acceptance.expected_statuses = ["2xx", "401", "403", "404", "409", "422", "429"]
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
    case.call_and_validate(base_url=base, session=session)


@whole.exclude(path="/api/events").parametrize()
@some
def test_every_answer_fits_the_document(case: Any, first: str, session: requests.Session) -> None:
    _check(case, first, session)


@brief.exclude(path="/api/events").parametrize()
@some
def test_every_answer_fits_the_document_on_other_stores(case: Any, other: str, session: requests.Session) -> None:
    _check(case, other, session)


# Events never end: whoever reads one answer to its end would wait for ever.
@whole.include(path="/api/events").parametrize()
@some
def test_events_are_refused_by_a_problem_or_come_as_the_document_says(
    case: Any, first: str, session: requests.Session
) -> None:
    asked = case.as_transport_kwargs(base_url=first, headers=case.headers)
    with session.request(**asked, stream=True, timeout=30) as answer:
        if answer.status_code != 200:
            case.validate_response(answer)
            return
        assert answer.headers["Content-Type"].partition(";")[0] == "text/event-stream"
        lines = answer.iter_lines()
        fields = [next(lines).decode().partition(": ") for _ in range(4)]
    told = {name: value for name, _, value in fields if name}
    msgspec.convert({"name": told["event"], "data": json.loads(told["data"])}, Event)  # what the document is made of
