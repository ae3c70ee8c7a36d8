"""Quota of requests per token, the headers about it, and the isolation of other tokens."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from fractions import Fraction

import pytest
from fastapi import FastAPI

from lockstep.api.auth import quotas
from lockstep.api.auth.quotas import Quotas
from lockstep.api.settings import ApiSettings
from lockstep.storage.people import tokens
from tests.api.conftest import SCRIPT, TOKEN, Api, problem

OTHER = "lockstep_another-token-for-tests"


class Clock:
    """Clock that stands until a test moves it."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limited(unchanged_api: Api, clock: Clock) -> Iterator[Api]:
    """Return an api that allows a caller four requests per minute."""
    api = unchanged_api
    with api.database.jobs() as session:
        tokens.ensure(session, OTHER, name="other", actor="bob")
    app = api.http.app
    assert isinstance(app, FastAPI)
    parts = app.state.parts
    for authorization in (f"Bearer {TOKEN}", f"Bearer {OTHER}"):
        parts.guard.look_up(authorization)
    app.state.parts = dataclasses.replace(parts, quotas=Quotas(4, 60, clock))
    yield api
    app.state.parts = parts


def test_a_bucket_allows_the_same_requests_as_an_exact_one(clock: Clock) -> None:
    draw = random.Random(7)
    for requests, window in ((1, 1), (3, 60), (10, 7), (36_000, 60)):
        limit, rate = Quotas(requests, window, clock), Fraction(requests, window)
        level, seen = Fraction(requests), Fraction(clock.at)
        for _ in range(400):
            # Eighths of a second are exact in binary, so both implementations see the same times.
            clock.at += draw.choice((0, 0, 0, 1, 5, 40)) / 8
            for _ in range(draw.choice((1, 1, requests // 3 + 1)) if requests < 100 else 150):
                level, seen = (
                    min(Fraction(requests), level + (Fraction(clock.at) - seen) * rate),
                    Fraction(clock.at),
                )
                standing = limit.take(b"one")
                assert standing is not None
                if level >= 1:
                    level -= 1
                    assert (standing.wait_seconds, standing.remaining) == (0, int(level))
                else:
                    assert standing.remaining == 0
                    assert standing.wait_seconds == max(1, -((level - 1) / rate // 1))
                assert standing.full_seconds == -((level - requests) / rate // 1)


def test_the_state_of_callers_is_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "BUCKETS_MAX", 10)
    limit = Quotas(2, 60, clock)
    for number in range(500):
        limit.take(b"busy")
        limit.take(str(number).encode())
    assert len(limit) == 10
    standing = limit.take(b"busy")
    assert standing is not None
    assert standing.wait_seconds, "who asks all the time is not forgotten"


def test_five_hundred_dashboards_of_one_token_are_never_refused(clock: Clock) -> None:
    fields = ApiSettings.model_fields
    limit = Quotas(
        fields["rate_limit_requests"].default, fields["rate_limit_seconds"].default, clock
    )
    for _ in range(300):
        clock.at += 1.0
        for _ in range(600):  # each reads a list in 5 s, a job and a chart in 2 s
            standing = limit.take(b"shared")
            assert standing is not None
            assert not standing.wait_seconds


def test_a_caller_gets_its_quota_and_is_refused_beyond_it(limited: Api, clock: Clock) -> None:
    stood = []
    for address in ("/v1/jobs", "/v1/jobs/none-such", "/v1/jobs?limit=0", "/v1/queue"):
        answer = limited.http.get(address)
        assert answer.headers["ratelimit-policy"] == '"requests";q=4;w=60'
        stood.append(answer.headers["ratelimit"])
    assert stood == [f'"requests";r={left};t={60 - 15 * left}' for left in (3, 2, 1, 0)]
    refused = limited.submit()
    found = problem(refused, 429, "too_many_requests")
    assert refused.headers["retry-after"] == "15"
    assert refused.headers["ratelimit"] == '"requests";r=0;t=60'
    assert "wait 15 s" in found["next_step"]
    assert limited.rows()["jobs"] == 0
    clock.at += 15
    assert limited.http.get("/v1/jobs").status_code == 200, "after the time that was told"
    assert limited.http.get("/v1/jobs").status_code == 429


def test_a_token_over_its_quota_slows_down_no_other_request(limited: Api) -> None:
    codes = [limited.http.get("/v1/jobs").status_code for _ in range(6)]
    assert codes == [200] * 4 + [429] * 2
    assert (
        limited.http.get("/v1/jobs", headers={"Authorization": f"Bearer {OTHER}"}).status_code
        == 200
    )
    for address in ("/livez", "/readyz", "/metrics", "/", "/openapi.json"):
        for _ in range(6):
            answer = limited.http.get(address)
            assert answer.status_code == 200
            assert "ratelimit" not in answer.headers


def test_made_up_tokens_are_charged_to_the_address_they_come_from(limited: Api) -> None:
    codes = [
        limited.http.get(
            "/v1/jobs", headers={"Authorization": f"Bearer lockstep_made-up-{number:020}"}
        ).status_code
        for number in range(6)
    ]
    assert codes == [401] * 4 + [429] * 2
    assert limited.http.get("/v1/jobs").status_code == 200, "a token that is known has its own"


def test_another_spelling_of_a_token_is_the_same_caller(limited: Api) -> None:
    for scheme in ("Bearer ", "bearer ", "BEARER  ", "Bearer   "):
        assert (
            limited.http.get("/v1/jobs", headers={"Authorization": scheme + TOKEN}).status_code
            == 200
        )
    assert limited.http.get("/v1/jobs").status_code == 429


def test_without_a_limit_nothing_is_counted_or_reported(unchanged_api: Api, clock: Clock) -> None:
    assert Quotas(0, 60, clock).take(b"anybody") is None
    answer = unchanged_api.submit(SCRIPT)
    assert re.fullmatch(r'"requests";q=36000;w=60', answer.headers["ratelimit-policy"]), (
        "the default has one"
    )
