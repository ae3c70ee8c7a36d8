"""Logs over HTTP: backwards, by time, and as one file."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lockstep.api.routes import logs as routes
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.logs import logs
from lockstep.storage.series import streams
from tests.api.conftest import Api, problem
from tests.storage import scenes

START = 1_790_000_000.0


def upload(api: Api, claim: Claim, texts: list[str]) -> None:
    """Store one line per second, of two ranks in turn."""
    with api.database.series() as session:
        found = streams.state(session, claim.assignment_id)
        assert found is not None
        first = found.next_line
        assert logs.append(
            session,
            assignment_id=claim.assignment_id,
            token=claim.token,
            offset_before=(0, found.log_offset),
            offset_after=(0, found.log_offset + 1),
            records=[
                LogRecord(time=START + first + index, rank=index % 2, stream="stdout", text=text)
                for index, text in enumerate(texts)
            ],
        )


@pytest.fixture
def claim(api: Api) -> Claim:
    claim = scenes.run(api.database)
    upload(api, claim, [f"line {n}" for n in range(1000)])
    return claim


def test_a_page_begins_at_the_tail_and_scrolls_up_to_the_beginning(api: Api, claim: Claim) -> None:
    address = f"/v1/jobs/{claim.job_id}/logs"
    page = api.http.get(address, params={"tail": 300}).json()
    texts = [line["text"] for line in page["lines"]]
    while page["prev_cursor"] is not None:
        page = api.http.get(address, params={"before": page["prev_cursor"], "limit": 300}).json()
        assert page["lines"]
        texts = [*(line["text"] for line in page["lines"]), *texts]
    assert texts == [f"line {n}" for n in range(1000)]
    again = api.http.get(
        address, params={"before": "1.500", "limit": 2}, headers={"Accept": "text/plain"}
    )
    assert (again.text, again.headers["x-prev-cursor"], again.headers["x-next-cursor"]) == (
        *("line 498\nline 499\n", "1.498", "1.500"),
    )
    for wrong in (
        {"before": "1.5", "cursor": "1.5"},
        {"before": "1.5", "tail": 3},
        {"before": "x"},
    ):
        problem(api.http.get(address, params=wrong), 422, "invalid")


def test_lines_are_chosen_by_when_they_were_written_in_either_spelling(
    api: Api, claim: Claim
) -> None:
    address = f"/v1/jobs/{claim.job_id}/logs"
    since, until = START + 990, START + 995
    named = [
        datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
        for moment in (since, until)
    ]
    for given in ((str(since), str(until)), named):
        page = api.http.get(address, params={"since": given[0], "until": given[1]}).json()
        assert [line["text"] for line in page["lines"]] == [f"line {n}" for n in range(990, 995)]
    for wrong in ("yesterday", "NaN", "-1", "2026-09-21T10:00:00"):
        problem(api.http.get(address, params={"since": wrong}), 422, "invalid")


def test_the_whole_log_is_one_named_file_with_filters(
    api: Api, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "DOWNLOAD_LINES", 64)
    address = f"/v1/jobs/{claim.job_id}/logs/download"
    upload(api, claim, ["\x1b[32mgrün\x1b[0m", ""])
    answer = api.http.get(address)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert (
        answer.headers["content-disposition"] == f'attachment; filename="digits-{claim.job_id}.log"'
    )
    assert answer.text == "".join(f"line {n}\n" for n in range(1000)) + "\x1b[32mgrün\x1b[0m\n\n"
    chosen = api.http.get(address, params={"rank": 1, "search": "LINE 9", "since": START + 50})
    assert chosen.text.split() == [
        word for n in (*range(91, 100, 2), *range(901, 1000, 2)) for word in ("line", str(n))
    ]
    assert api.http.get(address, params={"attempt": 2}).text == ""
    problem(api.http.get(address, params={"limit": 3}), 422, "invalid")


def test_a_download_of_a_growing_log_ends_at_the_requested_moment(
    api: Api, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "DOWNLOAD_LINES", 100)
    page = routes.log_pages.page

    def grows(*asked: object, **options: object) -> object:
        upload(api, claim, ["more"] * 150)
        return page(*asked, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(routes.log_pages, "page", grows)
    assert api.http.get(f"/v1/jobs/{claim.job_id}/logs/download").text == "".join(
        f"line {n}\n" for n in range(1000)
    )


def test_an_ended_job_is_complete_at_its_last_page_only(api: Api, claim: Claim) -> None:
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    address = f"/v1/jobs/{claim.job_id}/logs"
    assert api.http.get(address, params={"limit": 999}).json()["complete"] is False
    assert api.http.get(address, params={"limit": 1000}).json()["complete"] is True
    assert api.http.get(address, params={"before": "1.1000"}).json()["complete"] is True
    assert api.http.get(address, params={"before": "1.999"}).json()["complete"] is False


def test_the_largest_attempt_number_has_a_log_without_lines(
    unchanged_api: Api,
) -> None:
    address = f"/v1/jobs/{unchanged_api.job_id()}/logs"
    largest, beyond = {"attempt": 10**9 - 1}, {"attempt": 10**9}
    for path in (address, f"{address}/download"):
        assert unchanged_api.http.get(path, params=largest).status_code == 200
        problem(unchanged_api.http.get(path, params=beyond), 422, "invalid")


def test_a_stream_from_an_invalid_offset_is_refused(unchanged_api: Api) -> None:
    address = f"/v1/jobs/{unchanged_api.job_id()}/logs/stream"
    problem(unchanged_api.http.get(address, params={"cursor": "AAA"}), 422, "invalid")
    problem(unchanged_api.http.get(address, headers={"Last-Event-ID": "null"}), 422, "invalid")
