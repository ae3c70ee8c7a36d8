"""Choice of the checkpoint that a run resumes from: found, verified, equal on all nodes, and read.

The checkpoint in a folder such as ``resume`` has been chosen before, by the service or a user,
and must be intact. Otherwise the newest intact one of the run's own is taken. A run whose own
checkpoints are all damaged is refused: it would begin again at step 0 without a word.

Not here: files and digests (``engine.checkpoints.checkpoint``), the check that a checkpoint belongs
to the run (``engine.checkpoints.state``).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from lockstep.domain.life import attempt
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.checkpoints.checkpoint import DamagedCheckpointError
from lockstep.engine.checkpoints.contents import State
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry


class Chosen(NamedTuple):
    """Checkpoint that a run resumes from."""

    name: str
    """Its folder below the attempt's."""
    folder: Path
    state: State


class _Found(NamedTuple):
    folder: Path | None
    refused: str


def chosen(
    folder: Path, ranks: Ranks, telemetry: Telemetry, source: str, *, resumes: bool
) -> Chosen | None:
    """Return the checkpoint, on every rank; None at a fresh start. All ranks must call this.

    Parameters
    ----------
    folder : Path
        The attempt's.
    ranks : Ranks
    telemetry : Telemetry
    source : str
        Folder below the attempt's of a checkpoint that was chosen before.
    resumes : bool
        True to use the folder's own checkpoints if there is no such folder.

    Raises
    ------
    EngineError
        ``storage``: the checkpoint, or each of the run's own, is damaged. ``network``: the nodes
        have different ones.
    """
    state: State | None = None
    found = _Found(None, "")
    if ranks.first:
        found, state = _find(folder, telemetry, source, resumes=resumes)
    name = None if found.folder is None else found.folder.as_posix()
    name, refused = ranks.from_first((name, found.refused))
    if refused:
        raise EngineError(Reason.STORAGE, refused)
    if name is None:
        return None
    path = folder / name
    _require_whole_copies(path, ranks)
    return Chosen(name, path, state or checkpoint.load(path))


def _find(
    folder: Path, telemetry: Telemetry, source: str, *, resumes: bool
) -> tuple[_Found, State | None]:
    """Return the folder and state of the checkpoint, or the reason of a refusal. Rank 0 only."""
    own = folder / attempt.CHECKPOINTS
    checkpoint.tidy(own)
    resume = folder / source
    if resume.is_dir():
        state, damage = _read(resume, telemetry)
        refused = f"the checkpoint to resume from is damaged: {damage}" if damage else ""
        return _Found(resume.relative_to(folder), refused), state
    damaged = []
    for each in checkpoint.complete(own) if resumes else ():
        state, damage = _read(each, telemetry)
        if not damage:
            return _Found(each.relative_to(folder), ""), state
        damaged.append(f"{each.name}: {damage}")
    if not damaged:
        return _Found(None, ""), None
    refused = (
        f"every checkpoint of this run is damaged ({damaged[0]}): to begin again at step 0, delete "
        f"{own.absolute()}"
    )
    return _Found(None, refused), None


def _read(folder: Path, telemetry: Telemetry) -> tuple[State | None, str]:
    """Return a checkpoint's state, or its damage, which is logged."""
    try:
        checkpoint.verify(folder)
        return checkpoint.load(folder), ""
    except DamagedCheckpointError as error:
        damage = str(error)
    telemetry.event("checkpoint_skipped", folder=folder.name, why=damage)
    telemetry.log_line(f"warning: the checkpoint {folder.name} is damaged and skipped: {damage}")
    return None, damage


def _require_whole_copies(found: Path, ranks: Ranks) -> None:
    """Raise where another node's own copy is damaged, or is of another checkpoint.

    All ranks must call this.
    """
    reads = ranks.local_rank == 0
    damage = checkpoint.damage_of(found) if reads and not ranks.first else ""
    manifest = checkpoint.digest_of(found / attempt.MANIFEST).sha256 if reads and not damage else ""
    copies = ranks.gather((damage, manifest))
    found_damage = [damage for damage, _ in copies if damage]
    if found_damage:
        # Whose copy is whole is not at fault: it only cannot continue without the other node.
        reason, whose = (Reason.STORAGE, "this") if damage else (Reason.NETWORK, "another")
        raise EngineError(
            reason,
            f"{whose} node's copy of the checkpoint is damaged: {damage or found_damage[0]}",
        )
    if len({manifest for _, manifest in copies if manifest}) > 1:
        message = "the nodes have different checkpoints: the newest is incomplete on one of them"
        raise EngineError(Reason.NETWORK, message)
