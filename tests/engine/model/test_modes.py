"""Modules that ``model()`` leaves in evaluation mode stay there, through steps and evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.model.modes import evaluating, set_to_train
from tests.engine.model import mode_cases
from tests.engine.model.mode_cases import ByItself, Frozen, Loaded, Trainable, layers
from tests.engine.reference import distance
from tests.engine.spool import events
from tests.harness.ranks import Pool

STAYS = [True, False, False, False, False, True]
"""The whole, the backbone and its three layers, the head."""


@pytest.mark.parametrize("kind", [Frozen, ByItself])
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_frozen_backbone_stays_in_evaluation_mode_in_every_layout(
    pool: Pool, tmp_path: Path, kind: type[Frozen], strategy: str
) -> None:
    found = []
    for world_size, micro in ((1, 4), (1, 3), (2, 1)):
        folder = tmp_path / f"{world_size}-{micro}"
        options: dict[str, Any] = {
            "batch": {"size": 4, "micro_size": micro},
            "strategy": {"name": strategy},
        }
        modes, weights = pool.run(mode_cases.run, kind, folder, options, world_size=world_size)[0]
        assert modes == STAYS
        assert torch.equal(weights["0.1.running_mean"], layers().state_dict()["0.1.running_mean"])
        found.append(weights)
        assert events(folder, "warning") == []
    for other in found[1:]:
        assert distance(other, found[0]) <= 1e-12


def test_a_model_loaded_in_evaluation_mode_is_trained_as_a_whole(
    pool: Pool, tmp_path: Path
) -> None:
    modes, weights = pool.run(mode_cases.run, Loaded, tmp_path, {}, world_size=1)[0]
    assert modes == [True] * 6
    assert not torch.equal(weights["0.1.running_mean"], layers().state_dict()["0.1.running_mean"])


def test_trainable_weights_in_evaluation_mode_are_reported(pool: Pool, tmp_path: Path) -> None:
    modes, _ = pool.run(mode_cases.run, Trainable, tmp_path, {}, world_size=1)[0]
    assert modes == STAYS
    (warning,) = [each["message"] for each in events(tmp_path, "warning")]
    assert warning.startswith("model() leaves 0 in evaluation mode with trainable weights, so dr")


def test_an_evaluation_restores_the_mode_of_each_module() -> None:
    model = layers()
    model[0][2].eval()
    set_to_train(model)
    before = [module.training for module in model.modules()]
    assert before == [True, True, True, True, False, True]
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == before
