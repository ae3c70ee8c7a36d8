"""The files of a checkpoint are the same for all layouts, and any layout reads them."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn

from lockstep.engine.checkpoints import checkpoint, saving, streams, tensors
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered
from tests.engine import cases
from tests.engine.checkpoints.saves import same
from tests.engine.spool import events
from tests.engine.toy import Net, Toy
from tests.harness.ranks import Pool

OPTIONS = cases.OPTIONS | {"steps": 4, "checkpoint": {"every_steps": 2, "keep_last": 9}}
TOY = Toy(items=33, width=5, blocks=2, buffer=True)
"""Five rows: on two and three ranks the shards are unequal."""
LAYOUTS = [*itertools.product((1, 2, 3), ("ddp", "zero1", "fsdp")), (4, "fsdp 2")]
"""Ranks, and the strategy with the ranks of one copy."""
FILES = ("state.safetensors", "model.safetensors")


@contextlib.contextmanager
def tied() -> Iterator[None]:
    """Give the blocks of the toy one weight, and the model a number of an odd format."""
    build = Net.__init__

    def with_ties(self: Net, toy: Toy) -> None:
        build(self, toy)
        first, second = self.blocks
        first.mix.weight = second.mix.weight
        self.register_buffer("odd", torch.tensor([1 + 2j], dtype=torch.complex64))

    with mock.patch.object(Net, "__init__", with_ties):
        yield


@contextlib.contextmanager
def small_blocks() -> Iterator[None]:
    """Send and write 24 bytes at a time: several blocks per tensor, the last one shorter."""
    with (
        mock.patch.object(tensors, "BLOCK_BYTES", 24),
        mock.patch.object(streams, "BLOCK_BYTES", 24),
    ):
        yield


@contextlib.contextmanager
def tied_in_small_blocks() -> Iterator[None]:
    with tied(), small_blocks():
        yield


def train(pool: Pool, folder: Path, world_size: int, strategy: str, mutate: Any) -> Path:
    """Train, or continue from ``resume``; return the last checkpoint."""
    name, _, shard = strategy.partition(" ")
    options = OPTIONS | {"strategy": {"name": name, "shard": int(shard) if shard else None}}
    pool.run(cases.train, TOY, options, folder, mutate, world_size=world_size)
    return folder / "checkpoints/step-00000004"


def data(file: Path) -> bytes:
    """Return a file without its header: that of the model names the plan."""
    content = file.read_bytes()
    return content[8 + int.from_bytes(content[:8], "little") :]


@pytest.mark.contract(27)
@pytest.mark.parametrize(
    ("mutate", "layouts"), [(None, LAYOUTS[::2]), (tied_in_small_blocks, LAYOUTS[1::2])]
)
def test_loading_and_saving_gives_the_same_bytes_on_any_layout(
    pool: Pool, tmp_path: Path, mutate: Any, layouts: list[tuple[int, str]]
) -> None:
    """Each strategy occurs in both forms."""
    first = train(pool, tmp_path / "first", 2, "ddp", mutate)
    whole = checkpoint.load(first)
    for world_size, strategy in layouts:
        folder = tmp_path / f"{strategy}{world_size}"
        shutil.copytree(first, folder / "resume")
        again = train(pool, folder, world_size, strategy, mutate)
        assert checkpoint.verify(again) == 4
        for name in FILES:
            assert data(again / name) == data(first / name), (folder.name, name)
        digests = [checkpoint.digest_of(each / FILES[0]) for each in (first, again)]
        assert digests[0] == digests[1]
        loaded = checkpoint.load(again)
        for part in ("model", "optimizer", "identity", "parameters", "samples", "precision"):
            assert same(loaded[part], whole[part]), (folder.name, part)


@pytest.mark.contract(27)
@pytest.mark.parametrize("strategy", ["zero1", "fsdp"])
def test_each_rank_keeps_a_copy_of_its_own_of_what_it_reads(
    pool: Pool, tmp_path: Path, strategy: str
) -> None:
    """The file may be gone after the start, and a change of a moment must not reach it."""
    first = train(pool, tmp_path / "first", 2, strategy, None)
    digest = checkpoint.digest_of(first / "state.safetensors")
    shutil.copytree(first.with_name("step-00000002"), tmp_path / "again/resume")
    again = train(pool, tmp_path / "again", 2, strategy, emptied_after_the_start)
    assert checkpoint.digest_of(again / "state.safetensors") == digest


@contextlib.contextmanager
def emptied_after_the_start() -> Iterator[None]:
    """Write zeros into the checkpoint once it is loaded: a view of it would see them."""
    from lockstep.engine.loop.trainer import Trainer

    loop = Trainer._train

    def zeroed(self: Trainer) -> bool:
        file = self.folder / "resume/state.safetensors"
        self.ranks.barrier()
        if self.ranks.first:
            with file.open("r+b") as opened:
                opened.write(bytes(file.stat().st_size))
        self.ranks.barrier()
        return loop(self)

    with mock.patch.object(Trainer, "_train", zeroed):
        yield


@contextlib.contextmanager
def full_for_a_moment() -> Iterator[None]:
    """Fill the disk in the middle of the first file; there is space again at the next try."""
    write, calls = checkpoint._Hashing.write, itertools.count()

    def once(self: checkpoint._Hashing, block: bytes | memoryview) -> int:
        if next(calls) == 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, block)

    with (
        mock.patch.object(checkpoint._Hashing, "write", once),
        mock.patch.object(saving, "_FULL_POLL_SECONDS", 0.01),
    ):
        yield


@pytest.mark.contract(28)
@pytest.mark.parametrize("strategy", ["zero1", "fsdp"])
def test_a_disk_that_was_full_gets_everything_again(
    pool: Pool, tmp_path: Path, strategy: str
) -> None:
    plain = train(pool, tmp_path / "plain", 2, strategy, None)
    full = train(pool, tmp_path / "full", 2, strategy, full_for_a_moment)
    for step in (2, 4):
        for name in FILES[: step // 2]:
            one, other = (each.with_name(f"step-0000000{step}") / name for each in (plain, full))
            assert data(one) == data(other)
    messages = [warning["message"] for warning in events(tmp_path / "full", "warning")]
    assert len([message for message in messages if "the disk is full" in message]) == 1


def other_order(ranks: Ranks) -> str:
    mine = [Scattered(torch.float32, (3 + ranks.rank,), ((0, 3 + ranks.rank),), torch.zeros(3))]
    if not ranks.first:
        streams.send(ranks, mine)
        return ""
    receiver, refused = streams.Receiver(ranks, mine), ""
    try:
        receiver.begin()
    except RuntimeError as error:
        refused = str(error)
    receiver.answer(again=False)
    return refused


def test_blocks_of_another_order_are_refused(pool: Pool) -> None:
    found = pool.run(other_order, world_size=2)
    assert found == ["rank 1 sends other tensors than rank 0 expects", ""]


# --- the files


def state() -> dict[str, Any]:
    """Return a state with every form that a tensor or a value may have."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).state_dict()
    model["_extra_state"] = (1, {2: b"\x00\xff"}, {"$": 1.5})
    numbers, turns = torch.randn(6, 4), torch.tensor([1 + 2j, 3 - 1j])
    formats = {str(dtype): torch.ones(3).to(dtype) for dtype in (*tensors.NAMES, torch.complex128)}
    return {
        "model": model,
        "optimizer": {
            "state": {0: {"step": torch.tensor(7.0), "m": numbers.T}, 1: {"m": numbers[:0]}},
            "param_groups": [{"betas": (0.9, float("inf")), "params": [0, 1]}],
        },
        "parameters": [["a.weight", ""]],
        "held": [
            formats,
            numbers.T,
            numbers[::2, 1:],
            turns,
            turns.conj(),
            torch.eye(3).to_sparse(),
        ],
        "more": [torch.eye(4).to_sparse_csr(), {3, 1}, frozenset("ab"), torch.Size((2,)), 1j],
        "rest": [torch.float16, torch.device("cpu"), bytearray(b"x"), -0.0, 2**70, "\udc80", [{}]],
        "weight": nn.Parameter(torch.ones(2), requires_grad=False),
    }


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_every_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    given = state()
    folder = checkpoint.save(tmp_path, 3, given).folder
    found = checkpoint.load(folder)
    assert found.pop("step") == 3
    assert_same(found, given)
    assert found["model"]._metadata == given["model"]._metadata
    assert found["held"][1].stride() == given["held"][1].stride()
    assert type(found["weight"]) is nn.Parameter
    assert not found["weight"].requires_grad


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(other, torch.Tensor):
        assert (one.dtype, one.shape, one.layout) == (other.dtype, other.shape, other.layout)
        one, other = (each.to_dense().resolve_conj().contiguous() for each in (one, other))
        assert (
            one.numpy(force=True).tobytes() == other.numpy(force=True).tobytes()
            if (one.dtype not in (torch.bfloat16,) and "float8" not in str(one.dtype))
            else torch.equal(one.float(), other.float())
        )
    elif isinstance(other, dict):
        assert list(one) == list(other)
        for key, each in other.items():
            assert_same(one[key], each)
    elif isinstance(other, list | tuple):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            assert_same(mine, theirs)
    else:
        assert repr(one) == repr(other)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_tensors_have_the_names_of_the_model_and_other_programs_read_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    given = state()
    folder = checkpoint.save(tmp_path, 3, given).folder
    found = load_file(folder / "state.safetensors")
    assert torch.equal(found["model/0.weight"], given["model"]["0.weight"])
    assert torch.equal(found["optimizer/a.weight/m"], given["optimizer"]["state"][0]["m"])
    assert found["optimizer/1/m"].shape == (0, 4)
    document = json.loads((folder / "state.json").read_text())
    assert document["format"] == 1
    assert document["state"]["model"]["items"][0] == [
        "0.weight",
        {"$": "tensor", "name": "model/0.weight"},
    ]


def rewrite(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of a checkpoint, with a manifest that declares it complete."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    found = checkpoint.digest_of(folder / name)
    manifest["files"][name] = {"bytes": found.size_bytes, "sha256": found.sha256}
    (folder / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b'{"format": 2, "state": {}}', "it has format 2; expected 1"),
        (b"[]", "it has format None; expected 1"),
        (b'{"format": 1, "state": {"$": "later"}}', "it has a value of the unknown kind 'later'"),
        (
            b'{"format": 1, "state": {"$": "tensor", "name": "b", "dtype": "load"}}',
            "KeyError: 'b'",
        ),
    ],
)
def test_a_state_of_another_version_is_refused_by_name(
    tmp_path: Path, document: bytes, why: str
) -> None:
    folder = checkpoint.save(tmp_path, 1, {"a": torch.zeros(1)}).folder
    rewrite(folder, "state.json", document)
    assert checkpoint.verify(folder) == 1
    with pytest.raises(
        checkpoint.DamagedCheckpointError, match=f"its state cannot be read: .*{why}"
    ):
        checkpoint.load(folder)


@pytest.mark.contract(26)
def test_a_checkpoint_of_the_version_before_resumes_exactly(pool: Pool, tmp_path: Path) -> None:
    whole = train(pool, tmp_path / "whole", 2, "fsdp", None)
    resume = tmp_path / "again/resume"
    shutil.copytree(whole.with_name("step-00000002"), resume)
    torch.save(checkpoint.load(resume), resume / "state.pt")
    for name in ("state.json", "state.safetensors"):
        (resume / name).unlink()
    document = json.loads((resume / "manifest.json").read_text())
    (resume / "manifest.json").write_text(json.dumps(document | {"files": {}}))
    rewrite(resume, "state.pt", (resume / "state.pt").read_bytes())
    again = train(pool, tmp_path / "again", 2, "fsdp", None)
    assert events(tmp_path / "again", "resumed") == [{"step": 2, "exact": True, "from": "resume"}]
    for name in FILES:
        assert data(again / name) == data(whole / name)
