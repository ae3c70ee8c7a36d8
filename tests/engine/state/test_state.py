"""State beside the weights is saved and restored, or a resumed run says by name that it is not
exact."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.state import hidden_cases as hidden
from tests.engine.state import state_cases as cases
from tests.engine.state.state_cases import Ended, ended
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(45)


def apart(whole: Ended, again: Ended) -> float:
    """Return the largest relative difference of the weights at the end."""
    return max(
        float((again.weights[name] - value).abs().max() / value.abs().max())
        for name, value in whole.weights.items()
    )


def resumed(
    kind: Any, folder: Path, pool: Pool | None = None, world_size: int = 1, **more: Any
) -> tuple[Ended, Ended]:
    """Run eight steps, and resume the checkpoint of step 4; return both ends."""

    def run(name: str, size: int, options: dict[str, Any]) -> Ended:
        if pool is None or size == 1:
            return ended(Ranks(), kind, folder / name, options)
        found: Ended = pool.run(ended, kind, folder / name, options, world_size=size)[0]
        return found

    options = {each: more.pop(each) for each in ("strategy",) if each in more}
    whole = run("whole", more.pop("first", world_size), options)
    shutil.copytree(folder / "whole/checkpoints/step-00000004", folder / "again/resume")
    return whole, run("again", world_size, {**options, **more})


@pytest.mark.parametrize(
    ("kind", "world_size"), [(kind, 1 + place % 2) for place, kind in enumerate(cases.SAVED)]
)
def test_state_is_restored_bitwise_from_every_place(
    kind: Any, world_size: int, pool: Pool, tmp_path: Path
) -> None:
    """In another layout, larger micro-batches or more ranks, it makes no silent difference."""
    whole, again = resumed(kind, tmp_path)
    (event,) = again.resumed
    assert apart(whole, again) == 0
    assert event == {"step": 4, "exact": True, "from": "resume"}
    assert not [each for each in again.warnings if "not exact" in each]

    folder = tmp_path / "other"
    shutil.copytree(tmp_path / "again/resume", folder / "resume")
    if world_size == 1:
        other = ended(Ranks(), kind, folder, {"batch": {"size": 4, "micro_size": 4}})
    else:
        other = pool.run(ended, kind, folder, {}, world_size=world_size)[0]
    assert other.resumed[0]["exact"] is False
    named = [each for each in whole.warnings if "depends on micro_size and on the ranks" in each]
    assert apart(whole, other) <= 1e-12 or named


def test_an_iterator_is_named_before_the_first_step(tmp_path: Path) -> None:
    whole, again = resumed(cases.Iterating, tmp_path)
    assert any(
        "not saved, so a resumed run is not exact: task.numbers (an iterator, count)" in each
        for each in whole.warnings
    )
    assert again.resumed[0]["exact"] is False
    assert again.resumed[0]["why"] == ["task.numbers: an iterator, count"]
    assert any(
        each == "this resumed run is not exact: task.numbers (an iterator, count)"
        for each in again.warnings
    )


def test_an_object_that_replaces_another_is_named_at_the_next_checkpoint(
    tmp_path: Path,
) -> None:
    whole, again = resumed(cases.Phases, tmp_path)
    named = "task.phase (Phases.Second in place of object Phases.First)"
    assert any(named in each for each in whole.warnings)
    assert again.resumed[0]["exact"] is False


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "fsdp"])
def test_each_rank_gets_its_own_state_back(strategy: str, pool: Pool, tmp_path: Path) -> None:
    whole, again = resumed(
        cases.OwnPerRank, tmp_path, pool, world_size=2, strategy={"name": strategy}
    )
    assert apart(whole, again) == 0
    assert again.resumed[0]["exact"] is True


def test_state_that_differs_by_rank_is_named_on_another_number_of_ranks(
    pool: Pool, tmp_path: Path
) -> None:
    _, again = resumed(cases.OwnPerRank, tmp_path, pool, world_size=1, first=2)
    named = {each.partition(":")[0] for each in again.resumed[0]["why"] if "by rank" in each}
    assert named == {"count", "task.last"}


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [(cases.Counted, "zero1"), (cases.Volatile, "fsdp"), (cases.DictOfTensors, "fsdp")],
)
def test_sharded_strategies_restore_state_too(
    kind: Any, strategy: str, pool: Pool, tmp_path: Path
) -> None:
    whole, again = resumed(kind, tmp_path, pool, world_size=2, strategy={"name": strategy})
    assert apart(whole, again) == 0
    assert again.resumed[0]["exact"] is True


def test_a_number_that_the_user_changed_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(Ranks(), cases.Edited, tmp_path / "whole", {})
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    monkeypatch.setattr(cases.Edited, "factor", 2.0)
    again = ended(Ranks(), cases.Edited, tmp_path / "again", {})
    named = "task.factor: 1.0 at the checkpoint, 2.0 now"
    assert named in again.resumed[0]["why"]
    assert not any("path" in each for each in again.resumed[0]["why"])


class Logged(cases.Teacher):
    """Keeps a log that the training does not read."""

    not_state = ("log",)

    def __init__(self) -> None:
        super().__init__()
        self.log: list[float] = []

    def scale(self, model: Any) -> Any:
        self.log.append(float(model.weight.sum()))
        return super().scale(model)


class Misdeclared(cases.Counted):
    not_state = ("calls",)


def test_attributes_declared_as_no_state_are_left_out(tmp_path: Path) -> None:
    whole, again = resumed(Logged, tmp_path)
    assert again.resumed[0]["exact"] is True
    assert apart(whole, again) == 0
    state = checkpoint.load(tmp_path / "whole/checkpoints/step-00000004")
    assert not [name for name in state["held"]["entries"] if "log" in name]


def test_declared_no_state_that_the_loss_reads_is_reported(
    tmp_path: Path,
) -> None:
    _, again = resumed(Misdeclared, tmp_path)
    assert again.resumed[0]["exact"] is False
    assert "loss(): it depends on state that no attribute holds" in again.resumed[0]["why"]


@pytest.mark.parametrize("kind", hidden.NAMED)
def test_state_without_a_form_is_named(kind: Any, tmp_path: Path) -> None:
    whole, again = resumed(kind, tmp_path)
    (event,) = again.resumed
    assert apart(whole, again) > 0
    assert event["exact"] is False
    name = "task.other" if kind is hidden.Aliased else "task.hidden"
    assert any(why.startswith(f"{name}: a") or "shares" in why for why in event["why"])
    assert any("not exact" in each and name in each for each in whole.warnings)


@pytest.mark.parametrize("kind", hidden.SAVED)
def test_state_of_hooks_and_properties_is_restored_and_a_cache_is_none(
    kind: Any, tmp_path: Path
) -> None:
    whole, again = resumed(kind, tmp_path)
    assert apart(whole, again) == 0
    assert again.resumed[0]["exact"] is True
