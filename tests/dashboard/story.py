"""Some days of a team, which the site with the still clock has in its databases.

Three nodes of eight GPUs and one that is drained; four people in two projects; a sweep, jobs of each
state and kind of end, and a queue with its reasons.

Not here: the acts themselves (``site``).
"""

from __future__ import annotations

import math
import random
from typing import Any, Final

from lockstep.domain.audit import Action
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.people_views import ProjectLimits
from lockstep.domain.rights import ProjectRole, Right, ServiceRole
from lockstep.domain.training.metrics import StepValues
from tests.dashboard.site import (
    DAY,
    GIB,
    HIGHER,
    HOUR,
    LOWER,
    MINUTE,
    MOMENT,
    OUT_OF_MEMORY,
    TOKENS,
    TRACEBACK,
    Site,
    language_model,
    script,
    train,
)

ALL: Final = tuple(range(8))
SWEEP: Final = 24
"""Runs of the sweep, which the comparison shows."""


def played(site: Site) -> None:
    """Write the whole story; the clock stands at its last moment afterwards."""
    _people(site)
    for number in range(1, 5):
        site.node(f"gpu-{number}")
    _sweep(site)
    _ended(site)
    _running(site)
    _waiting(site)
    site.settle()


def _people(site: Site) -> None:
    site.clock.at = MOMENT - 40 * DAY
    site.person("ada", "Ada Lovelace", ServiceRole.ADMIN)
    for name, title in (("ben", "Ben Okri"), ("cleo", "Cleo Marin"), ("dan", "Dan Sato")):
        site.person(name, title)
    site.program("ci")
    limits = ProjectLimits(gpus_max=24, budget_gpu_hours=120, timeout_default_seconds=DAY)
    site.project("language", "Language models", weight=2.0, limits=limits)
    site.project("vision", "Vision", limits=ProjectLimits(gpus_max=16, gpus_per_job_max=8))
    for project, name, role in (
        ("language", "ada", ProjectRole.ADMIN),
        ("language", "ben", ProjectRole.MEMBER),
        ("language", "ci", ProjectRole.MEMBER),
        ("vision", "cleo", ProjectRole.ADMIN),
        ("vision", "dan", ProjectRole.MEMBER),
        ("vision", "ada", ProjectRole.VIEWER),
    ):
        site.member(project, name, role)
    for name, secret in TOKENS.items():
        site.token(name, secret)
    site.clock.at = MOMENT - 9 * DAY
    site.audited("ada", Action.PROJECT_CHANGE, "language", "language", limits={"gpus_max": 24})
    site.audited("ada", Action.MEMBER_SET, "dan", "vision", role="member")
    site.clock.at = MOMENT - 3 * HOUR
    site.audited("ben", Right.NODE_WRITE, "POST /v1/nodes/gpu-2/drain", None, denied=True)


def _sweep(site: Site) -> None:
    """Write runs that differ in their learning rate and weight decay."""
    chance = random.Random(24)
    for number in range(SWEEP):
        rate, decay = 10 ** (-4 + 1.6 * number / SWEEP), (0.0, 0.05, 0.1)[number % 3]
        name = f"lm-sweep-{number:02}"
        began = 30 * HOUR - number * 40 * MINUTE
        command = ("train.py", "--lr", f"{rate:.1e}", f"--wd={decay}", "--width", "768")
        labels = {"sweep": "lr-wd", "team": "language"}
        site.submit(name, began, "ben", **script(1, *command, project="language", labels=labels))
        claim = site.start(name, (f"gpu-{1 + number % 3}", (number % 8,)))
        low = 1.9 + 0.5 * abs(math.log10(rate) + 3.1) - 0.6 * decay
        steps = range(1, 301 - 23 * (number % 4 == 3))
        values = [
            StepValues(
                10 * step,
                site.clock.at + 5 * step,
                {
                    "val/loss": low + 2.2 * 0.985**step + chance.gauss(0, 0.015),
                    "train/loss": low + 2.3 * 0.98**step + chance.gauss(0, 0.04),
                    "train/lr": rate * (1 - step / 400),
                    "val/accuracy": 0.71 - 0.1 * low - 0.4 * 0.98**step,
                },
            )
            for step in steps
        ]
        site.points(claim, values, defined={"val/loss": LOWER, "val/accuracy": HIGHER})
        site.end(claim, began - 28 * MINUTE, Reason.SUCCEEDED, "every rank ended well")


def _ended(site: Site) -> None:
    """Write jobs that have ended, each in its own way."""
    more = {"project": "language", "labels": {"team": "language", "stage": "base"}}
    site.submit("gpt-350m", 9 * HOUR, "ada", **train(8, steps=6_000, lr=6e-4, **more))
    claim = site.start("gpt-350m", ("gpu-1", ALL))
    began, steps = site.clock.at, range(4, 6_001, 4)
    site.points(claim, language_model(steps, 0.9, seed=5, began=began, rate=6e-4))
    for step in range(1_000, 6_001, 1_000):
        site.clock.at = began + 0.9 * step
        site.checkpoint(claim, step, 4.2 * GIB, final=step == 6_000)
    site.files(claim, {"config.json": 1_204, "eval/scores.csv": 48_211, "eval/plot.png": 91_377})
    site.end(claim, 7.4 * HOUR, Reason.SUCCEEDED, "every rank ended well", last_step=6_000)

    vision = {"project": "vision", "labels": {"team": "vision", "data": "imagenet"}}
    for number, (name, reason, message) in enumerate(
        (
            ("vit-small-a", Reason.SUCCEEDED, "every rank ended well"),
            ("vit-small-b", Reason.SUCCEEDED, "every rank ended well"),
            ("vit-small-c", Reason.CANCELLED, "cancelled by cleo"),
            ("segment-probe", Reason.TIMED_OUT, "it ran for longer than its limit of 40 min"),
        )
    ):
        began = 7 * HOUR - number * HOUR
        site.submit(name, began, "cleo", **script(2, "vit.py", "--size", "s", **vision))
        claim = site.start(name, ("gpu-2", (2 * number, 2 * number + 1)))
        values = [
            StepValues(
                step,
                site.clock.at + 2 * step,
                {"train/loss": 6.9 * 0.997**step + 0.4 + number / 9, "val/top1": 1 - 0.995**step},
            )
            for step in range(1, 900 - 100 * number)
        ]
        site.points(claim, values, defined={"val/top1": HIGHER})
        site.end(claim, began - 40 * MINUTE, reason, message)

    site.submit(
        "vit-large", 2 * HOUR, "ada", **script(4, "train.py", "--size", "l", "--lr", "1e-3", **more)
    )
    claim = site.start("vit-large", ("gpu-3", (0, 1, 2, 3)))
    began, chance = site.clock.at, random.Random(8)
    values = []
    for step in range(1, 421):
        loss = 6.9 * 0.994**step + 1.1 + chance.gauss(0, 0.05)
        measured = {"train/loss": math.nan if 300 < step < 306 else loss, "train/lr": 1e-3}
        memory = {"memory/allocated_bytes": (61 + step / 24) * GIB}
        values.append(StepValues(step, began + 4 * step, measured | memory))
    site.points(claim, values)
    site.lines(claim, _lines(began, 400, TRACEBACK))
    site.end(
        claim,
        1.5 * HOUR,
        Reason.USER_ERROR,
        "rank 3 exited with code 1",
        rank=3,
        node="gpu-3",
        exit_code=1,
        exception=OUT_OF_MEMORY,
        log_excerpt=TRACEBACK,
        last_step=420,
    )


def _lines(began: float, steps: int, last: str = "") -> list[LogRecord]:
    """Return the lines of four ranks."""
    found = [LogRecord(time=began - 2, rank=-1, stream="launcher", text="4 ranks on gpu-3")]
    for step in range(1, steps + 1):
        at = began + 4 * step
        for rank in range(4 if step % 10 == 0 else 1):
            text = f"step {step:>4}  loss {6.9 * 0.994**step + 1.1:.4f}  {402 - rank:.0f} samples/s"
            found.append(LogRecord(time=at + rank / 50, rank=rank, stream="stdout", text=text))
        if step == 300:
            text = "\x1b[33mUserWarning: the loss is not finite at step 301\x1b[0m"
            found.append(LogRecord(time=at + 1, rank=0, stream="stderr", text=text))
    end = began + 4 * steps + 1
    return found + [
        LogRecord(time=end + place / 100, rank=3, stream="stderr", text=text)
        for place, text in enumerate(last.splitlines())
    ]


def _running(site: Site) -> None:
    language = {"project": "language", "labels": {"team": "language", "stage": "base"}}
    spec = train(8, timeout_seconds=12 * HOUR, **language)
    site.submit("gpt-1b-base", 5.2 * HOUR, "ada", **spec)
    claim = site.start("gpt-1b-base", ("gpu-1", ALL))
    began = site.clock.at
    reached = int((MOMENT - 3 - began) / 1.9)
    values = language_model(range(6, reached, 6), 1.9, seed=1, began=began)
    site.points(claim, [*values, *language_model([reached], 1.9, seed=2, began=began)])
    site.lines(claim, _lines(MOMENT - 1_203, 300))
    for step in range(1_000, reached, 1_000):
        site.clock.at = began + 1.9 * step
        site.checkpoint(claim, step, 12.4 * GIB)
    site.sampled(claim, [96.0] * 8)
    with_note = {"note": "Baseline of the paper. Do not stop.", "starred": True}
    site.marked("gpt-1b-base", "ada", **with_note)

    vision = {"project": "vision", "labels": {"team": "vision"}}
    site.submit("vit-ablation", 3 * HOUR, "cleo", **script(4, "vit.py", "--drop", "0.1", **vision))
    claim = site.start("vit-ablation", ("gpu-2", (0, 1, 2, 3)))
    began = site.clock.at
    site.points(claim, _curve(began, 2_600, 4.0))
    site.sampled(claim, [88.0, 87.0, 84.0, 89.0], memory=0.6)

    site.submit("notebook", 4 * HOUR, "dan", **script(2, "serve.py", **vision))
    claim = site.start("notebook", ("gpu-2", (4, 5)))
    site.points(claim, _curve(site.clock.at, 40, 9.0))
    site.sampled(claim, [0.0, 0.0], memory=0.3)

    site.submit("llama-tune", 6 * HOUR, "ben", **train(8, **language))
    claim = site.start("llama-tune", ("gpu-4", ALL))
    began = site.clock.at
    site.points(claim, language_model(range(5, 3_000, 5), 1.4, seed=3, began=began))
    for step in (1_000, 2_000):
        site.clock.at = began + 1.4 * step
        site.checkpoint(claim, step, 26.8 * GIB)
    site.end(claim, 4.7 * HOUR, Reason.LOST, "gpu-4 fell silent", node="gpu-4", last_step=2_990)
    site.drained("gpu-4", "ada", "fan 2 is replaced on Monday")
    site.clock.at = MOMENT - 4.6 * HOUR
    claim = site.start("llama-tune", ("gpu-3", ALL))
    began = site.clock.at - 1.4 * 2_000
    reached = int((MOMENT - 2 - began) / 1.4)
    site.points(claim, language_model(range(2_001, reached, 7), 1.4, seed=4, began=began))
    site.sampled(claim, [93.0] * 8)


def _curve(began: float, count: int, seconds: float) -> list[StepValues]:
    chance = random.Random(count)
    return [
        StepValues(
            step,
            began + seconds * step,
            {
                "train/loss": 5.2 * 0.9985**step + 0.7 + chance.gauss(0, 0.04),
                "val/top1": 0.79 * (1 - 0.997**step),
                "train/lr": 1e-3 * (1 - step / 9_000),
            },
        )
        for step in range(1, count + 1)
    ]


def _waiting(site: Site) -> None:
    language = {"project": "language", "labels": {"team": "language"}}
    vision: dict[str, Any] = {"project": "vision", "labels": {"team": "vision"}}
    limit = {"timeout_seconds": 6 * HOUR}
    site.submit("gpt-1b-long", 80 * MINUTE, "ada", **train(16, **language, **limit, priority=60))
    site.submit("vit-huge", 61 * MINUTE, "cleo", **script(8, "vit.py", **vision, **limit))
    for number, ago in enumerate((50, 42, 33)):
        site.submit(
            f"eval-{number}",
            ago * MINUTE,
            "ada",
            **script(8, "evaluate.py", "--shard", str(number), **language, timeout_seconds=HOUR),
        )
    site.submit("probe-h200", 20 * MINUTE, "dan", **script(4, "vit.py", **vision))
    site.submit("ben-late", 6 * MINUTE, "ben", **script(8, "train.py", **language))
