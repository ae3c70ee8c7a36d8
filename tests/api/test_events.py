"""Events of a job, page by page, from either end."""

from __future__ import annotations

from typing import Any

from tests.api.conftest import Api
from tests.storage import scenes


def test_events_are_paged_oldest_first(api: Api) -> None:
    claim = scenes.run(api.database)
    address = f"/v1/jobs/{claim.job_id}/events"
    everything = api.http.get(address).json()["items"]
    first = api.http.get(address, params={"limit": 2}).json()
    rest = api.http.get(address, params={"cursor": first["next_cursor"]}).json()
    assert first["items"] + rest["items"] == everything
    assert everything[0]["kind"] == "submitted"
    assert rest["next_cursor"] is None


def test_events_are_read_from_the_newest_back_to_the_first(api: Api) -> None:
    claim = scenes.run(api.database)
    address = f"/v1/jobs/{claim.job_id}/events"
    everything = api.http.get(address).json()["items"]
    assert len(everything) > 2
    told: list[dict[str, Any]] = []
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        page = api.http.get(address, params={"order": "newest", "limit": 1, **cursor}).json()
        told += page["items"]
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
    assert told == everything[::-1]
    # A client that began at the newest event continues forward from it.
    ahead = api.http.get(address, params={"cursor": told[0]["id"]}).json()
    assert ahead == {"items": [], "next_cursor": None}
