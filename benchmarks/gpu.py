"""Measurements that need a GPU.

NCCL, GPT-2's throughput in bf16 and fp16, ``micro_size: auto``, a real shortage of memory.

    python benchmarks/gpu.py [--only nccl,throughput,auto,shortage] [--rounds 5] [--json FILE]

``nccl``        seconds from the start to the first all-reduce, one process per device, and a check of the sum.
``throughput``  GPT-2 124M (12 layers of 768, context 1024, 50,257 tokens) on one device: a hand-written loop and Lockstep
                take turns on the same batches with the same kernels (fused AdamW, autocast,
                clipping, a log line every ten steps); tokens/s and MFU by ``engine.runtime.flops``,
                in bf16 and in fp16 with a scaler.
``auto``        every micro-batch that ``micro_size: auto`` might select, one run each, and the selected one.
``shortage``    a run whose first micro-batch exceeds the memory limit: the step at which it halved, the new size, and
                the distance of its weights from a run that began with that size, as ‖a − b‖ / ‖b‖.

A timed run waits for the device twice, after the first ``WARM`` steps and after the last.

Without a CUDA device nothing is run, and each row reports this. ``--device cpu`` tests the script
itself, for example with a model of ``--layers 1 --width 64 --context 32``; rows that need CUDA are
omitted there too.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader, Dataset

from lockstep.domain.spec.batch import accumulation_steps
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.memory import sizes
from lockstep.engine.runtime import flops
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.causal_lm import GPT, TextTask
from lockstep.engine.task.text import Sequences

VOCABULARY: Final = 50_257
RATE, CLIP = 6e-4, 1.0
WARM: Final = 5
FORMATS: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}
Row = dict[str, Any]


class Tokens(Dataset[Sequences]):
    """Windows of random tokens: their content does not affect the time."""

    def __init__(self, context: int):
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(VOCABULARY, (512, context + 1), generator=generator)

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> Sequences:
        window = self.tokens[index % 512]
        return window[:-1], window[1:]


class GPT2(TextTask):
    """The model and the tokens, for both loops."""

    def __init__(self, options: argparse.Namespace):
        self.options = options

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        shape = self.options
        return GPT(
            context=shape.context,
            layers=shape.layers,
            heads=shape.heads,
            width=shape.width,
            vocabulary=VOCABULARY,
        )

    def dataset(self, split: str) -> Tokens:  # noqa: ARG002 - both splits are the same
        return Tokens(self.options.context)


# --- the two loops


def raw(options: argparse.Namespace, precision: str, micro: int, steps: int, folder: Path) -> None:
    """Train with the hand-written loop."""
    device, task = torch.device(options.device), GPT2(options)
    model = task.model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True)
    scaler = torch.amp.GradScaler(
        device.type, enabled=precision == "fp16" and device.type == "cuda"
    )
    micro_batches = options.batch // micro
    loader = iter(
        DataLoader(
            task.dataset("train"), batch_size=micro, shuffle=True, pin_memory=device.type == "cuda"
        )
    )
    with (folder / "raw.jsonl").open("w") as log:
        for step in range(steps):
            for _ in range(micro_batches):
                batch = tuple(part.to(device, non_blocking=True) for part in next(loader))
                with torch.autocast(device.type, FORMATS[precision]):
                    loss = task.loss(model, batch) / (micro * options.context)
                scaler.scale(loss / micro_batches).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            if step % 10 == 0:
                log.write(json.dumps({"step": step, "loss": loss.item()}) + "\n")


def lockstep(
    options: argparse.Namespace, precision: str, micro: int | None, steps: int, folder: Path
) -> tuple[Trainer, Path]:
    """Train with the engine; return the trainer and its folder."""
    train = Train.model_validate(
        {
            "task": "causal_lm",
            "batch": {"size": options.batch, "micro_size": micro or "auto"},
            "steps": steps,
            "precision": precision,
            "optimizer": {"name": "adamw", "lr": RATE, "weight_decay": 0.01},
            "clip_grad_norm": CLIP,
            "log_every_steps": 10,
        }
    )
    plan = BatchPlan(
        batch_size=options.batch,
        micro_batch_size=micro,
        accumulation_steps=accumulation_steps(options.batch, micro, 1) if micro else None,
        world_size=1,
    )
    here = Path(tempfile.mkdtemp(dir=folder))
    trainer = Trainer(train, plan, GPT2(options), Ranks(device=torch.device(options.device)), here)
    with contextlib.redirect_stdout(
        io.StringIO()
    ):  # Its lines would be between those of the table.
        trainer.run()
    return trainer, here


def tokens_per_second(options: argparse.Namespace, run: Callable[[], object], steps: int) -> float:
    """Return the tokens per second after the warm-up steps."""
    updates, at = 0, []

    def note(*_: Any) -> None:
        nonlocal updates
        updates += 1
        if updates in (WARM, steps):
            wait(options)
            at.append(time.perf_counter())

    hook = register_optimizer_step_post_hook(note)
    try:
        run()
    finally:
        hook.remove()
        free(options)
    return float((steps - WARM) * options.batch * options.context / (at[1] - at[0]))


def wait(options: argparse.Namespace) -> None:
    if options.device == "cuda":
        torch.cuda.synchronize()


def free(options: argparse.Namespace) -> None:
    """Free the memory of the last run."""
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()


# # --- measurements


def nccl(options: argparse.Namespace) -> Iterator[Row]:
    """Time the start of NCCL, one process per device."""
    if options.device != "cuda":
        yield not_run("nccl")
        return
    count = torch.cuda.device_count()
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        processes.spawn(_first_sum, args=(count, folder, began), nprocs=count)
        seconds = [float(Path(folder, f"rank{rank}").read_text()) for rank in range(count)]
    yield {"row": "nccl", "devices": count, "seconds": max(seconds)}


def _first_sum(rank: int, count: int, folder: str, began: float) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl",
        store=dist.FileStore(f"{folder}/store", count),
        rank=rank,
        world_size=count,
        device_id=device,
    )
    total = torch.full((1,), float(rank + 1), device=device)
    dist.all_reduce(total)
    if total.item() != count * (count + 1) / 2:
        raise SystemExit(f"rank {rank}: NCCL's sum over {count} devices is {total.item()}")
    Path(folder, f"rank{rank}").write_text(str(time.time() - began))
    dist.destroy_process_group()


def throughput(options: argparse.Namespace) -> Iterator[Row]:
    """Run raw and Lockstep in turns."""
    task, steps = GPT2(options), options.steps
    batch = task.collate([task.dataset("train")[0]])
    with torch.device("meta"):
        twin = task.model()
    per_token = flops.count(
        lambda: task.loss(twin, tuple(part.to("meta") for part in batch)).backward()
    )
    per_token /= options.context
    name = torch.cuda.get_device_name() if options.device == "cuda" else "cpu"
    for precision in FORMATS:
        found: dict[str, list[float]] = {"raw": [], "lockstep": []}
        for turn in range(options.rounds):
            with tempfile.TemporaryDirectory() as folder:
                runs = {
                    "raw": lambda: raw(options, precision, options.micro, steps, Path(folder)),  # noqa: B023 - called here
                    "lockstep": lambda: lockstep(
                        options,
                        precision,  # noqa: B023 - called here
                        options.micro,
                        steps,
                        Path(folder),
                    ),
                }
                for engine in sorted(runs, reverse=bool(turn % 2)):
                    found[engine].append(tokens_per_second(options, runs[engine], steps))
        peak = flops.peak_flops(name, precision)
        for engine, values in found.items():
            rate = statistics.median(values)
            yield {
                "row": f"throughput {precision} {engine}",
                "tokens_per_second": rate,
                "mfu": rate * per_token / peak if peak else None,
                "ratio_to_raw": statistics.median(found["raw"]) / rate,
                "rounds": values,
            }


def sweep(options: argparse.Namespace) -> Iterator[Row]:
    """Run every size that ``auto`` might select, and the selected one."""
    found: dict[int, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes.candidates(options.batch):
            try:
                found[size] = tokens_per_second(
                    options,
                    lambda: lockstep(options, "bf16", size, options.steps, Path(folder)),  # noqa: B023 - called here
                    options.steps,
                )
            except IndexError:
                raise SystemExit(f"m={size}: fewer updates than steps") from None
            yield {"row": f"auto sweep m={size}", "tokens_per_second": found[size]}
        trainer, _ = lockstep(options, "bf16", None, WARM, Path(folder))
        chosen = trainer.plan.micro_batch_size
        assert chosen is not None, "the run settled it"
        free(options)
    best = max(found, key=lambda size: found[size])
    yield {
        "row": f"auto takes m={chosen}, best m={best}",
        "ratio_to_best": found[chosen] / found[best],
    }


def shortage(options: argparse.Namespace) -> Iterator[Row]:
    """Run on a device that is too small for the requested micro-batch."""
    if options.device != "cuda":
        yield not_run("shortage")
        return
    steps = 3
    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.reset_peak_memory_stats()
        small = options.micro
        first, _ = lockstep(options, "bf16", small, steps, Path(folder))
        needed = torch.cuda.max_memory_allocated()
        expected = weights(first)
        del first
        free(options)
        with limited(needed * 1.2):
            second, _ = lockstep(options, "bf16", small * 4, steps, Path(folder))
        got = second.plan.micro_batch_size
        yield {
            "row": f"shortage: asked for m={small * 4}, continued with m={got}",
            "steps": second.steps_done,
            "difference": distance(weights(second), expected),
        }
        del second
        free(options)


@contextlib.contextmanager
def limited(bytes_held: float) -> Iterator[None]:
    """Limit the allocator's memory: beyond it, a real ``torch.OutOfMemoryError``."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, bytes_held / total))
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def weights(trainer: Trainer) -> list[Tensor]:
    return [
        parameter.detach().double().cpu() for parameter in trainer._parts.model.module.parameters()
    ]


def distance(ours: list[Tensor], theirs: list[Tensor]) -> float:
    square = sum(float((a - b).square().sum()) for a, b in zip(ours, theirs, strict=True))
    return (square / sum(float(b.square().sum()) for b in theirs)) ** 0.5


def not_run(row: str) -> Row:
    return {"row": row, "not_run": "this machine has no CUDA device"}


PARTS: Final = {"nccl": nccl, "throughput": throughput, "auto": sweep, "shortage": shortage}


def line(row: Row) -> str:
    if "not_run" in row:
        return f"{row['row']:44} NOT RUN: {row['not_run']}"
    formats = {
        "devices": "{} devices",
        "seconds": "{:.2f} s",
        "tokens_per_second": "{:,.0f} tokens/s",
        "mfu": "MFU {:.1%}",
        "ratio_to_raw": "{:.3f} × raw's time",
        "ratio_to_best": "{:.3f} of the best",
        "steps": "{} steps",
        "difference": "weights differ by {:.1e}",
    }
    told = [text.format(row[name]) for name, text in formats.items() if row.get(name) is not None]
    return f"{row['row']:44} {', '.join(told)}"


def main() -> None:
    parser = argparse.ArgumentParser(description="What only a GPU can show.")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--batch", type=int, default=128, help="samples of one optimizer step")
    parser.add_argument("--micro", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    if unknown := set(options.only) - set(PARTS):
        parser.error(f"--only knows {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    there = options.device == "cpu" or torch.cuda.is_available()
    rows = []
    for part in options.only:
        for row in PARTS[part](options) if there else [not_run(part)]:
            rows.append(row)
            print(line(row), flush=True)
    if options.json is not None:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        about = {"torch": str(torch.__version__), "python": platform.python_version(), "device": device,
                 "cores": os.cpu_count(), **{name: value for name, value in vars(options).items() if name not in {"json", "only"}}}  # fmt: skip
        options.json.write_text(json.dumps({"about": about, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
