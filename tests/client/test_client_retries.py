"""Changes that may have been carried out when their answer is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lockstep.client.api import Client
from lockstep.client.errors import UncertainError
from tests.client import examples
from tests.client.server import RESET, Answer, ReplayServer, problem


@pytest.fixture
def client(server: ReplayServer) -> Iterator[Client]:
    with Client(server.url, "secret") as connected:
        yield connected


def test_a_repeated_change_is_of_the_job_that_was_meant(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", examples.job())
    server.on("POST", f"/v1/jobs/{examples.ID}/cancel", RESET, examples.job())
    assert client.cancel("last", now=True).id == examples.ID
    assert [each.path for each in server.asked].count("/v1/jobs/last") == 1


@pytest.mark.parametrize("answer", [RESET, problem(502, "", "a proxy"), problem(500, "", "no")])
def test_a_token_that_may_exist_is_not_made_again(
    client: Client, server: ReplayServer, answer: Answer
) -> None:
    server.on("POST", "/v1/tokens", answer)
    with pytest.raises(UncertainError, match="may have been carried out") as failed:
        client.create_token("ci")
    assert "lockstep token ls" in failed.value.next_step
    assert len(server.asked) == 1
