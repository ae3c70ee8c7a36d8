"""One answer for the page after the sign-in: own jobs, what needs attention, who uses what.

Not here: its parts (``api.jobs.home``), lists of jobs (``api.routes.job_lists``).
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from lockstep.api.access import Reads, guarded
from lockstep.api.http import conditional, tags
from lockstep.api.jobs import home
from lockstep.api.jobs.known_views import Marked
from lockstep.api.jobs.views import starts_of
from lockstep.api.parts import AppStateDep
from lockstep.domain.home_views import HomeJobs, HomeView
from lockstep.storage.jobs import listing, own

router = APIRouter(prefix="/v1", tags=["jobs"], dependencies=guarded)


@router.get(
    "/home",
    operation_id="getHome",
    summary="Read the own jobs, what needs attention, and who uses what",
    description="Of the jobs and projects that you may read. The numbers of devices are at most "
    "five seconds old.",
    response_model=HomeView,
    responses=conditional.documented(),
)
def get_home(request: Request, app_state: AppStateDep, grant: Reads) -> Response:
    database, among = app_state.database, grant.readable
    with database.look_jobs() as look:
        mine = own.read(look, grant.actor, among=among)
        marks = listing.marks(look, [*dict.fromkeys([*mine.first, *mine.waiting])])
    cluster, shares = app_state.cluster.read(), app_state.shares.among(among)
    projects = home.project_use(cluster, shares, among)
    attention = home.notices(database, cluster, mine.failed, shares, among)
    facts = (grant.actor, mine, cluster, projects, attention)
    starts = starts_of(app_state.estimates, marks)
    batches = tags.batches_of(database, marks)
    tag = tags.of_jobs(marks, batches, *facts, starts=starts, among=among)
    if (same := conditional.unchanged(request, tag)) is not None:
        return same

    def answer() -> bytes:
        marked = [Marked(mark, batches.get(mark.id, 0)) for mark in marks]
        views = {job.id: job for job in app_state.views.read(marked, starts, among=among)}
        found = HomeView(
            nodes=cluster.nodes,
            devices=home.device_use(cluster),
            projects=projects,
            others=home.others(cluster, among),
            jobs=HomeJobs(
                running=mine.running,
                queued=mine.queued,
                failed=len(mine.failed),
                first=[views[each] for each in mine.first if each in views],
                waiting=[views[each] for each in mine.waiting if each in views],
            ),
            attention=attention,
        )
        return found.model_dump_json().encode()

    return app_state.rendered.answer(request, tag, answer)
