"""One attempt on a real node agent process, with a fake launcher that runs each job's code.

On both databases. No broker is running in this module: notifications are lost, and heartbeats find
all the work.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from lockstep.domain.life.lifecycle import Intent
from lockstep.storage.attempts import checkpoints, nodes
from lockstep.storage.jobs import stopping
from tests.harness.node import Node
from tests.harness.processes import alive, until

SUCCEED = "ranks(); finish()"


def test_a_job_that_ends_well_succeeds_and_releases_devices_and_folder(
    node: Node,
) -> None:
    job_id = node.submit(SUCCEED, devices=2)
    node.wait(job_id, "succeeded")
    folder = node.folder(job_id)
    node.released(job_id)
    until(lambda: not folder.exists())
    with node.database.read_jobs() as session:
        (found,) = nodes.all_nodes(session)
        assert [device.free for device in found.devices] == [True] * 4


def test_metrics_and_log_lines_arrive_complete_and_in_order(node: Node) -> None:
    job_id = node.submit(
        "ranks()\n"
        "for i in range(3000): log(f'line {i}', segment=i // 1000)\n"
        "for i in range(500): metric({'step': i + 1, 'loss': i / 2})\n"
        "finish()"
    )
    node.wait(job_id, "succeeded")
    assert [line.text for line in node.logs(job_id)] == [f"line {i}" for i in range(3000)]
    loss = node.series(job_id)["loss"]
    assert (loss.step, loss.value) == (list(range(1, 501)), [i / 2 for i in range(500)])


def test_the_last_lines_without_a_newline_arrive(node: Node) -> None:
    job_id = node.submit(
        "ranks(); log('one')\nopen(folder / 'spool/metrics.jsonl', 'a').write('{\"step\": 3, "
        '"loss": 0.5}\')\nfinish()'
    )
    node.wait(job_id, "succeeded")
    assert node.series(job_id)["loss"].step == [3]


def test_a_bad_metrics_line_is_named_once_and_the_others_arrive(node: Node) -> None:
    job_id = node.submit(
        "ranks(); metric({'step': 1, 'loss': 1.0}); metric('loss: 3'); metric({'step': 2, 'loss': "
        "2.0})\n"
        "metric({'step': -3, 'loss': 3.0}); metric({'step': 4, 'loss': 4.0}); finish()"
    )
    node.wait(job_id, "succeeded")
    assert node.series(job_id)["loss"].step == [1, 2, 4]
    warnings = [message for kind, message in node.events(job_id) if kind == "warning"]
    assert warnings[0].startswith("line 2 of $LOCKSTEP_METRICS is dropped:")
    assert "'loss: 3'" in warnings[0]
    assert warnings[1:] == ["2 lines of $LOCKSTEP_METRICS were dropped"]


def test_a_metrics_line_without_a_step_takes_the_next_one(node: Node) -> None:
    job_id = node.submit(
        "ranks(); metric({'loss': 1}); metric({'step': 7, 'loss': 2}); metric({'loss': 3}); "
        "finish()"
    )
    node.wait(job_id, "succeeded")
    assert node.series(job_id)["loss"].step == [1, 7, 8]


def test_the_launcher_reads_the_offset_and_segments_stay_for_a_restore(node: Node) -> None:
    job_id = node.submit(
        "ranks(); log('a', segment=0); log('b', segment=1); log('c', segment=2); until_told()"
    )
    node.wait(job_id, "running")
    logs = node.folder(job_id) / "logs"
    until((logs / "000002.jsonl").exists)
    size = (logs / "000002.jsonl").stat().st_size
    until(lambda: json.loads((logs / "uploaded").read_text()) == {"segment": 2, "offset": size})
    assert len(list(logs.glob("*.jsonl"))) == 3


def test_a_checkpoint_is_published_pruned_and_resumed_by_the_next_attempt(
    node: Node,
) -> None:
    source = (
        "resumed = folder / 'resume/weights'\n"
        "if resumed.exists(): log('from ' + resumed.read_text()); ranks(); finish()\n"
        "ranks(); checkpoint(10); checkpoint(20); finish('killed', 'for the test')"
    )
    job_id = node.submit(source)
    node.wait(job_id, "queued")
    with node.database.read_jobs() as session:
        (kept,) = checkpoints.of_job(session, job_id)
    assert kept.step == 20
    assert (node.store / kept.location / "weights").read_text() == "weights of 20"
    assert not (node.store / kept.location).with_name("step-00000010").exists()
    node.place(job_id)
    node.wait(job_id, "succeeded")
    assert "from weights of 20" in [line.text for line in node.logs(job_id)]


def test_plan_and_warnings_of_the_engine_reach_the_job(node: Node) -> None:
    job_id = node.submit(
        "event('running'); event('plan', batch_size=8, micro_batch_size=4, accumulation_steps=2, "
        "world_size=1)\n"
        "event('warning', message='slow disk'); event('silent', message='No output.', node='n')\n"
        "event('nonsense'); event('resumed', step=5, "
        "**{'from': 'x'}); finish()"
    )
    job = node.wait(job_id, "succeeded")
    assert job.plan["accumulation_steps"] == 2
    events = node.events(job_id)
    assert ("warning", "slow disk") in events
    assert ("silent", "No output.") in events
    assert ("resumed", "Training resumes from the checkpoint of step 5.") in events


def test_a_cancelled_job_is_stopped_gracefully_first(node: Node) -> None:
    job_id = node.submit("ranks(); log('before'); until_told()")
    node.wait(job_id, "running")
    node.cancel(job_id)
    job = node.wait(job_id, "cancelled")
    assert job.outcome["message"] == "stopped on request"
    assert [line.text for line in node.logs(job_id)] == ["before"]


def test_a_job_that_ignores_the_stop_is_killed_with_all_its_children(node: Node) -> None:
    job_id = node.submit("ranks(); stubborn_child(); time.sleep(600)")
    node.wait(job_id, "running")
    child = node.child(job_id)
    node.cancel(job_id)
    node.wait(job_id, "cancelled")
    assert not alive(child)


def test_an_intent_becomes_a_stop_with_its_reason(node: Node) -> None:
    job_id = node.submit("ranks(); until_told()", retry={"max": 0})
    node.wait(job_id, "running")
    with node.database.jobs() as session:
        assert stopping.ask(session, job_id, Intent.TIMEOUT, actor="test", message="too long")
    assert node.wait(job_id, "failed").outcome["reason"] == "timed_out"


UNREADABLE = "ranks(); (folder / 'result.json').mkdir(); time.sleep(600)"


@pytest.mark.parametrize(
    ("source", "code", "reason", "words"),
    [
        pytest.param(
            "raise SystemExit(3)", {}, "launch_failed", "exited with 3", id="launcher-cannot-start"
        ),
        pytest.param(
            SUCCEED,
            {"code": {"path": "/nonexistent/folder"}},
            "code_unavailable",
            "/nonexistent/folder",
            id="code-cannot-be-brought",
        ),
        pytest.param(
            UNREADABLE,
            {},
            "launch_failed",
            "result.json cannot be read",
            id="result-cannot-be-read",
        ),
    ],
)
def test_a_failure_to_launch_ends_the_attempt_with_its_reason(
    node: Node, source: str, code: dict[str, Any], reason: str, words: str
) -> None:
    job_id = node.submit(source, retry={"max": 0}, **code)
    outcome = node.wait(job_id, "failed").outcome
    assert outcome["reason"] == reason
    assert words in outcome["message"]
    node.released(job_id)


def failures(node: Node) -> list[tuple[str, str]]:
    """Return job and reason of each failure that counts against the node."""
    with node.database.read_jobs() as session:
        return [(failure.job_id, failure.reason.value) for failure in nodes.failures(session)]


@pytest.mark.parametrize(
    "reason", ["storage", "launch_failed", "diverged", "host_out_of_memory", "lost", "unanswered"]
)
def test_failures_that_the_job_could_write_do_not_count_against_nodes(
    node: Node, reason: str
) -> None:
    job_id = node.submit(f"ranks(); finish({reason!r}, 'written by the job')", retry={"max": 1})
    outcome = node.wait(job_id, "queued").outcome
    node.released(job_id)
    assert outcome["reason"] == reason
    assert node.job(job_id).avoid_nodes == [node.name]  # the retry still runs elsewhere
    assert failures(node) == []


@pytest.mark.parametrize(
    "source",
    ["raise SystemExit(3)", UNREADABLE],
    ids=["dead launcher", "damaged result"],
)
def test_launchers_that_the_job_could_stop_do_not_count_against_nodes(
    node: Node, source: str
) -> None:
    job_id = node.submit(source, retry={"max": 0})
    assert node.wait(job_id, "failed").outcome["reason"] == "launch_failed"
    node.released(job_id)
    assert failures(node) == []


WRITES_EVENT_FILES = """
from lockstep.domain.training import event_files
path = folder / "tensorboard/val/events.out.tfevents.1.host"
path.parent.mkdir()
path.write_bytes(event_files.header(1.0) + b"".join(event_files.record(s, 1.0, {"loss": s / 2}) for s in (1, 2, 30)))
ranks()
until_told()
"""


def test_a_running_script_has_its_event_files_and_its_node_measured(node: Node) -> None:
    job_id = node.submit(WRITES_EVENT_FILES)
    measured = {
        "system/node0/memory_bytes",
        "system/node0/cpu_percent",
        "system/rank0/rss_bytes",
        "system/rank0/cpu_percent",
    }
    until(
        lambda: measured | {"val/loss"} <= set(node.series(job_id)), what="all sources are stored"
    )
    loss = node.series(job_id)["val/loss"]
    assert (loss.step, loss.value) == ([1, 2, 30], [0.5, 1.0, 15.0])
    until(
        lambda: node.series(job_id)["system/node0/memory_bytes"].step[-1] == 30,
        what="a sample at the last step",
    )
    assert not [name for name in node.series(job_id) if "gpu" in name]
    node.cancel(job_id)
    outcome = node.wait(job_id, "cancelled").outcome
    assert outcome is not None
    assert outcome["last_step"] == 30
    assert not [message for kind, message in node.events(job_id) if kind == "warning"]
