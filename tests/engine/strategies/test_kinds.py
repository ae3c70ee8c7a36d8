"""Each row of ``domain.kinds`` has a class of the engine, and says what the class says."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from lockstep.domain.kinds import devices, strategies
from lockstep.domain.spec.strategy import Strategy
from lockstep.engine.runtime.device import TRAITS, traits_of
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.strategies import STRATEGIES


def test_each_strategy_has_a_row_a_name_in_the_spec_and_a_class() -> None:
    assert set(STRATEGIES) == set(strategies.STRATEGIES)
    assert set(get_args(strategies.StrategyName)) == set(strategies.STRATEGIES)


def test_each_kind_of_device_has_traits() -> None:
    assert set(TRAITS) == set(devices.DEVICES) == set(get_args(devices.DeviceName))


def test_an_unknown_device_is_refused_and_not_taken_for_another() -> None:
    with pytest.raises(EngineError, match="does not train on devices of the kind meta"):
        traits_of(torch.device("meta"))


def test_rows_and_classes_agree() -> None:
    for name, row in strategies.STRATEGIES.items():
        whole_everywhere = row.keeps_promise and not row.shards_model
        assert STRATEGIES[name].replicated is whole_everywhere, name
        assert bool(STRATEGIES[name].lost_promise) is not row.keeps_promise, name


def test_each_setting_of_a_row_is_a_field_of_the_section() -> None:
    for row in strategies.STRATEGIES.values():
        assert set(row.required) <= set(row.settings) <= set(Strategy.model_fields)
