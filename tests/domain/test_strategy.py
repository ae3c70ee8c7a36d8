"""Strategies that do not fit the devices, the number of ranks or the length of their run."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.domain.spec.job import JobSpec
from tests.domain.documents import changed, train_document


def _strategy(document: dict[str, Any], **strategy: Any) -> dict[str, Any]:
    return changed(document, "/train/strategy", strategy)


def test_data_parallel_is_one_rank_that_drives_all_devices_of_a_node() -> None:
    document = _strategy(changed(train_document(), "/resources", {"gpus": 4}), name="data_parallel")
    spec = JobSpec.model_validate(document)
    assert (spec.world_size(), spec.device_count()) == (1, 4)
    for resources, said in (
        ({"gpus": 4, "nodes": 2}, "nodes is 2"),
        ({"gpus": 4, "gpu_type": "cpu"}, "is cpu"),
    ):
        with pytest.raises(ValidationError, match=said):
            JobSpec.model_validate(changed(document, "/resources", resources))


@pytest.mark.parametrize(
    ("gpus", "odd"),
    [
        (4, None),
        (12, None),
        (3, None),
        (6, 6),
        ({"min": 1, "max": 4}, None),
        ({"min": 8, "max": 8}, None),
        ({"min": 2, "max": 8}, 5),
    ],
)
def test_an_incomplete_copy_of_the_model_is_refused(gpus: Any, odd: int | None) -> None:
    document = changed(changed(train_document(), "/train/batch/size", 64), "/resources/gpus", gpus)
    document = _strategy(document, name="fsdp", shard=4)
    if odd is None:
        JobSpec.model_validate(document)
        return
    with pytest.raises(ValidationError, match=f"is 4, and {odd} ranks are no multiple of it"):
        JobSpec.model_validate(document)


@pytest.mark.parametrize(
    ("steps", "start", "precision", "said"),
    [
        (100, None, "fp32", "nothing would be compressed"),
        (20, 20, "bf16", "nothing"),
        (200, 10, "fp16", "scale changes"),
    ],
)
def test_powersgd_that_could_not_work_is_refused(
    steps: int, start: int | None, precision: str, said: str
) -> None:
    document = changed(
        changed(train_document(), "/train/steps", steps), "/train/precision", precision
    )
    with pytest.raises(ValidationError, match=said):
        JobSpec.model_validate(
            _strategy(document, compression="powersgd", powersgd_start_step=start)
        )
