"""Submission of a job: from a decoded document to a row.

The order matters. The idempotency key is checked before anything that may have changed since the
first request (the code archive, the nodes): a repeat returns the job even then. Those checks run
inside the transaction, which an error rolls back. The blob store and a git repository are queried
before the transaction, because nothing slow may run inside it.

Not here: HTTP (``api.routes.jobs``), the wait reasons of queued jobs (``scheduler``).
"""

from __future__ import annotations

from collections.abc import Iterator

from lockstep.api import changes
from lockstep.api.http.body import JsonBody
from lockstep.api.jobs.entry_files import missing_entry
from lockstep.api.jobs.uploads import Uploads
from lockstep.api.jobs.views import waits_because
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.rights import Right, Rights
from lockstep.domain.spec.init_from import job_checkpoint
from lockstep.domain.spec.job import GitCode, JobSpec, UploadedCode
from lockstep.domain.spec.reading import invalid, read_spec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import plan_of
from lockstep.storage.attempts import checkpoints, events, lineage, nodes
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs import jobs
from lockstep.storage.objects import repositories
from lockstep.storage.people import limits, projects
from lockstep.storage.people.audit import Sender


def submit(
    database: Database,
    uploads: Uploads,
    body: JsonBody,
    *,
    sender: Sender,
    rights: Rights,
    service: limits.ServiceLimits,
    idempotency_key: str | None,
    origin: str | None = None,
) -> tuple[JobRow, bool, str]:
    """Store a job.

    Parameters
    ----------
    database : Database
    uploads : Uploads
    body : JsonBody
    sender : Sender
    rights : Rights
        Rights of the sender.
    service : ServiceLimits
    idempotency_key : str or None
    origin : str, optional
        For a clone: text about the origin of its spec, for the job's history.

    Returns
    -------
    (JobRow, bool, str)
        The job, True if it was created now, and the reason why it waits.

    Raises
    ------
    LockstepError
        If the document is rejected; nothing is written then.
    """
    spec = read_spec(body.document)
    spec, missing = settle(database, uploads, spec, rights)
    plan = plan_of(spec)
    database.require_room()
    action = Action.JOB_SUBMIT if origin is None else Action.JOB_CLONE
    with changes.of(database, sender, action) as change:
        session = change.session
        spec, project = projects.settled(session, spec, rights, projects.hold)
        has_members, largest = limits.installation(session)
        spec, source = limits.with_defaults(project, spec, service, has_members=has_members)
        job, created = jobs.create(
            session,
            document=body.document,
            spec=spec,
            plan=plan,
            actor=sender.actor,
            idempotency=None if idempotency_key is None else (idempotency_key, body.fingerprint),
            timeout_source=source,
        )
        change.of(job.id, spec.project, name=spec.name)
        change.repeated = not created
        if created:
            if projects.is_new(session, spec, project, sender.actor, rights):
                projects.ensure(session, spec.project)
            errors = (
                *check_capacity(spec, largest),
                *limits.check(project, spec, service),
                *missing,
            )
            if errors:
                raise invalid(errors)
            lineage.hold(session, spec)
            limits.check_queue(session, project, sender.actor, besides=job.id)
            if origin is not None:
                events.add(
                    session,
                    job_id=job.id,
                    attempt=None,
                    kind="cloned",
                    message=origin,
                    actor=sender.actor,
                )
        elif job.project not in rights.within(Right.JOB_READ):
            raise _of_another(idempotency_key)
        lacking = nodes.lacking(session, job.needs)
    return job, created, waits_because(largest, lacking)


def _of_another(idempotency_key: str | None) -> LockstepError:
    return LockstepError(
        ErrorCode.CONFLICT,
        f"the idempotency key {idempotency_key!r} was used for a job that you may not read",
        next_step="Use a new key for a new job.",
    )


def settle(
    database: Database, uploads: Uploads, spec: JobSpec, rights: Rights
) -> tuple[JobSpec, tuple[FieldError, ...]]:
    """Resolve the references of a spec: code archive, git ref and source of the initial weights.

    Returns the spec with resolved references, and the errors of those that cannot be resolved.
    """
    code_errors = tuple(_check_code(spec, uploads))
    spec, ref_errors = _settle_ref(spec)
    spec, source_errors = _settle_source(database, spec, rights)
    spec, former_errors = _settle_former(database, spec, rights)
    return spec, (*code_errors, *ref_errors, *source_errors, *former_errors)


def _settle_ref(spec: JobSpec) -> tuple[JobSpec, tuple[FieldError, ...]]:
    """Return the spec with the current commit of its git ref, and the errors."""
    if not isinstance(spec.code, GitCode):
        return spec, ()
    try:
        commit = repositories.commit_of(spec.code.git, spec.code.ref)
    except repositories.RepositoryError as error:
        return spec, (
            FieldError(
                "/code/ref", str(error), spec.code.ref, "give a branch, a tag or a full commit id"
            ),
        )
    except repositories.RepositoryUnreachableError as error:
        step = "check the address and the service's access to it, or give the full commit id as ref"
        return spec, (
            FieldError(
                "/code/git", f"the repository does not answer: {error}", spec.code.git, step
            ),
        )
    return spec.model_copy(update={"code": GitCode(git=spec.code.git, ref=commit)}), ()


def _settle_source(
    database: Database, spec: JobSpec, rights: Rights
) -> tuple[JobSpec, tuple[FieldError, ...]]:
    """Return the spec with the full id of the job whose checkpoint it starts from, and the errors.

    A name, or ``last``, may refer to another job by the time the checkpoint is fetched. The choice
    of the checkpoint is not resolved: without a step it is the newest at that time.
    """
    source = job_checkpoint(spec.train.init_from) if spec.train is not None else None
    if source is None:
        return spec, ()
    assert spec.train is not None
    with database.read_jobs() as session:
        try:
            job = jobs.find(session, source.job, among=rights.within(Right.JOB_READ))
        except LockstepError as error:
            return spec, (_wrong_source(spec.train, error.message, error.next_step),)
        if job.project not in rights.within(Right.CHECKPOINT_READ):
            why = f"checkpoints of project {job.project} need the right {Right.CHECKPOINT_READ}"
            step = "ask an admin of the project for the role member"
            return spec, (_wrong_source(spec.train, why, step),)
        settled = source._replace(job=job.id)
        found = checkpoints.named(session, settled)
        there = ", ".join(str(row.step) for row in checkpoints.of_job(session, job.id))
    train = spec.train.model_copy(update={"init_from": str(settled)})
    if found is None:
        which = source.which
        what = (
            "checkpoint"
            if which is None
            else "best checkpoint"
            if which == "best"
            else f"checkpoint of step {which}"
        )
        step = (
            f"it has checkpoints of the steps {there}"
            if there
            else "wait until the job has saved one"
        )
        return spec, (_wrong_source(spec.train, f"job {job.id} has no {what}", step),)
    return spec.model_copy(update={"train": train}), ()


def _settle_former(
    database: Database, spec: JobSpec, rights: Rights
) -> tuple[JobSpec, tuple[FieldError, ...]]:
    """Return the spec with the full id of the job that it continues, and the errors."""
    if spec.continues is None:
        return spec, ()
    with database.read_jobs() as session:
        try:
            job = jobs.find(session, spec.continues, among=rights.within(Right.JOB_READ))
        except LockstepError as error:
            return spec, (FieldError("/continues", error.message, spec.continues, error.next_step),)
        state, kind = job.state, job.spec["kind"]
        may = job.project in rights.within(Right.CHECKPOINT_READ)
    why = ""
    if not may:
        why = f"checkpoints of project {job.project} need the right {Right.CHECKPOINT_READ}"
        step = "ask an admin of the project for the role member"
    elif state not in TERMINAL:
        why = f"job {job.id} is {state.value}; only an ended job can be continued"
        step = "wait until it ends; a paused job goes on with: lockstep resume JOB"
    elif kind != spec.kind:
        why = f"job {job.id} is of kind {kind}, and this one of kind {spec.kind}"
        step = "continue a job of the same kind"
    if why:
        return spec, (FieldError("/continues", why, spec.continues, step),)
    return spec.model_copy(update={"continues": job.id}), ()


def _wrong_source(train: Train, message: str, next_step: str) -> FieldError:
    return FieldError("/train/init_from", message, train.init_from, next_step)


def check_capacity(spec: JobSpec, largest: int) -> Iterator[FieldError]:
    """Yield an error if the job could never start; none while no node is registered.

    Parameters
    ----------
    spec : JobSpec
    largest : int
        Largest number of devices that all nodes ever had together; 0 if none was ever registered.
    """
    asked = spec.device_count()
    if largest and asked > largest:
        yield FieldError(
            "/resources/gpus",
            f"{asked} devices are requested, and all registered nodes together have "
            f"{largest}, so the job could never start",
            asked,
            f"request at most {largest}, or register more nodes first",
        )


def _check_code(spec: JobSpec, uploads: Uploads) -> Iterator[FieldError]:
    """Yield an error if the code archive of the job is missing, or the file that it starts with."""
    if spec.code is None:
        yield from missing_entry(spec, frozenset())
    if not isinstance(spec.code, UploadedCode):
        return
    archive = uploads.find(spec.code.upload)
    if archive is not None:
        yield from missing_entry(spec, archive.code_files)
    else:
        yield FieldError(
            "/code/upload",
            "no archive with this digest was uploaded",
            spec.code.upload,
            "upload it with PUT /v1/uploads/{sha256}, or submit with: lockstep submit --code DIR",
        )
