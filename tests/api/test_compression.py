"""Compressed answers: the clients and answers concerned, and equal contents."""

from __future__ import annotations

import gzip
import json

from tests.api.conftest import Api
from tests.api.test_reading import record, upload_metrics
from tests.storage import scenes


def _raw(api: Api, address: str, accept: str) -> tuple[dict[str, str], bytes]:
    """Return headers and the body as transferred."""
    with api.http.stream("GET", address, headers={"Accept-Encoding": accept}) as answer:
        return dict(answer.headers), b"".join(answer.iter_raw())


def test_a_chart_is_compressed_for_clients_that_accept_it(api: Api) -> None:
    claim = scenes.run(api.database)
    upload_metrics(api, claim, *(record(step) for step in range(1, 3_000)))
    address = f"/v1/jobs/{claim.job_id}/metrics?max_points=1000"
    plain, body = _raw(api, address, "identity")
    packed, small = _raw(api, address, "br, gzip;q=0.8")
    assert "content-encoding" not in plain
    assert packed["content-encoding"] == "gzip"
    assert int(packed["content-length"]) == len(small) < len(body) / 2
    assert json.loads(gzip.decompress(small)) == json.loads(body)
    assert plain["etag"] == packed["etag"]
    assert plain["vary"] == packed["vary"] == "Accept-Encoding"
    assert "content-encoding" not in _raw(api, address, "gzip;q=0")[0]
    unchanged = api.http.get(
        address, headers={"If-None-Match": packed["etag"], "Accept-Encoding": "gzip"}
    )
    assert unchanged.status_code == 304


def test_small_answers_and_other_types_are_not_compressed(api: Api) -> None:
    job_id = api.job_id()
    for address in (f"/v1/jobs/{job_id}/metrics", f"/v1/jobs/{job_id}/metrics/download"):
        headers, _ = _raw(api, address, "gzip")
        assert "content-encoding" not in headers
