"""Built-in models and models of ``transformers``, unedited, cut by their own plans: the training of a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn

from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import cut_model
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.hf_causal_lm import HfCausalLM
from lockstep.engine.task.interface import Task
from tests.engine.parallel import parallel_cases as cases
from tests.engine.parallel.small_lm import VOCABULARY, item, reference
from tests.engine.parallel.test_tensor import SETTINGS, check, layout, observed, sizes
from tests.engine.reference import batches_of
from tests.harness.ranks import Pool

# Not importorskip: ranks import this module, and transformers takes each five seconds.
pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="needs transformers")

STEPS = SETTINGS | {"steps": 4}
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_positions": 16,
    "n_embd": 16,
    "n_layer": 2,
    "n_head": 4,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
NO_DROPOUT = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
LINES = {
    "transformer.wte": "embedding_rowwise",
    "transformer.h.*.attn.c_attn": "packed_colwise:3",
    "transformer.h.*.attn.c_proj": "rowwise",
    "transformer.h.*.mlp.c_fc": "colwise",
    "transformer.h.*.mlp.c_proj": "rowwise",
    "lm_head": "colwise_gather_output",
}
FAMILIES: dict[str, tuple[str, dict[str, Any], dict[str, str | None]]] = {
    "llama": ("LlamaConfig", SHAPE, {}),
    "llama tied": ("LlamaConfig", SHAPE | {"tie_word_embeddings": True}, {}),
    "llama padded": ("LlamaConfig", SHAPE | {"pad_token_id": 7}, {}),
    "llama whole head": ("LlamaConfig", SHAPE, {"lm_head": None}),
    "qwen2": ("Qwen2Config", SHAPE, {}),
    "qwen3": ("Qwen3Config", SHAPE | {"head_dim": 4}, {}),
    "gpt2": ("GPT2Config", GPT2 | NO_DROPOUT, LINES),
}


OWN = CausalLM(context=8, layers=2, heads=4, width=16)


def model_of(family: str) -> nn.Module:
    import transformers

    torch.manual_seed(11)
    if family == "causal_lm":
        return OWN.model().double()
    name, shape, _ = FAMILIES[family]
    config = getattr(transformers, name)(**shape)
    model: nn.Module = transformers.AutoModelForCausalLM.from_config(config)
    return model.double()


class FamilyTask(cases.SmallTask):
    """Model of a family, with the plan of ``hf_causal_lm``."""

    def __init__(self, family: str, plan: dict[str, str | None] | None = None):
        super().__init__()
        self.family = family
        self.built_in: Task = OWN
        if family != "causal_lm":
            lines = FAMILIES[family][2] if plan is None else plan
            self.built_in = HfCausalLM(model="folder", path="text", tensor_plan=lines)

    def model(self) -> nn.Module:
        return model_of(self.family)

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:
        return self.built_in.tensor_plan(model)


def train(
    ranks: Ranks, family: str, settings: dict[str, Any], folder: Path, plan: Any = None
) -> list[list[int]]:
    return cases.train(ranks, settings, folder, task=FamilyTask(family, plan))


@pytest.mark.parametrize(
    ("family", "copies", "tensor"),
    # Two ranks alone import transformers.
    [("causal_lm", 2, 2), *((family, 1, 2) for family in FAMILIES)],
)
def test_a_model_of_a_library_trains_as_a_plain_loop(
    pool: Pool, tmp_path: Path, family: str, copies: int, tensor: int
) -> None:
    settings = STEPS | layout(tensor)
    seen = pool.run(train, family, settings, tmp_path, world_size=copies * tensor)
    batches = batches_of(seen[::tensor], sizes(settings), 1)
    build: Callable[[], nn.Module] = lambda: model_of(family)  # noqa: E731 - an argument
    check(observed(tmp_path), reference(settings, 3, batches, build))


@pytest.mark.parametrize(
    ("family", "copies", "tensor"),
    [
        ("causal_lm", 1, 2),
        *((family, 1, 1) for family in ("llama", "llama tied", "qwen2", "qwen3", "gpt2")),
    ],
)
def test_a_model_of_a_library_trains_in_two_stages(
    pool: Pool, tmp_path: Path, family: str, copies: int, tensor: int
) -> None:
    settings = STEPS | {"parallel": {"tensor": tensor, "pipeline": 2}}
    world = copies * tensor * 2
    seen = pool.run(train, family, settings, tmp_path, world_size=world)
    batches = batches_of(seen[: world // 2 : tensor], sizes(settings), 1)
    check(observed(tmp_path), reference(settings, 3, batches, lambda: model_of(family)))


def messages(ranks: Ranks, family: str) -> int:
    """Return the sums over a tensor group in one forward and backward."""
    task, model = FamilyTask(family), model_of(family)
    assert ranks.device_group is not None
    cut_model(model, task.tensor_plan(model), TensorGroup(ranks.device_group, ranks.rank))
    with mock.patch.object(dist, "all_reduce", wraps=dist.all_reduce) as sums:
        task.loss(model, task.collate([item(5)])).backward()
    return sums.call_count


@pytest.mark.parametrize("family", ["llama", "qwen3", "causal_lm"])
def test_a_block_sends_four_sums_in_a_micro_batch(pool: Pool, family: str) -> None:
    # Query, key and value share one. Two more are of the embedding and of the head.
    assert pool.run(messages, family, world_size=2) == [4 * 2 + 2] * 2


@pytest.mark.parametrize(
    ("family", "plan", "words"),
    [
        ("gpt2", {}, "has no tensor plan for GPT2LMHeadModel"),
        ("gpt2", {"transformer.h.*.attn.c_attn": "packed_colwise:3"}, "the cut model raised"),
        ("qwen3", {"model.layers.*.self_attn.q_norm": None}, "q_norm.weight is .* no line"),
        ("llama", {"model.layers.*.mlp.gate": "colwise"}, "no module of the model has the name"),
    ],
)
def test_a_plan_that_a_family_cannot_follow_is_refused(
    pool: Pool, tmp_path: Path, family: str, plan: dict[str, Any], words: str
) -> None:
    with pytest.raises(EngineError, match=words) as seen:
        pool.run(train, family, STEPS | layout(2), tmp_path, plan, world_size=2)
    assert seen.value.reason == "bad_spec"


def test_random_numbers_of_a_cut_activation_are_refused(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"draws random numbers for an activation that is cut"):
        pool.run(cases.train, SETTINGS | layout(2), tmp_path, None, cases.Drawing(), world_size=2)
