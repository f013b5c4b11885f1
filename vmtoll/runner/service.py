"""A service at the start of a run: the same answers on every arm, and what the run will ask of it at most."""

from collections.abc import Sequence

from vmtoll.agent.protocol import PageAnswer
from vmtoll.machines.changes import alter
from vmtoll.machines.session import Session
from vmtoll.model.errors import AgentError, ExperimentError, VmtollError
from vmtoll.model.event import Listener, NotMeasured, ServiceCompared
from vmtoll.model.load import LoadKind
from vmtoll.model.service import ServicePage
from vmtoll.model.workload import SearchWorkload
from vmtoll.runner.plan import combinations
from vmtoll.runs.folder import SERVICE, read_pages
from vmtoll.spec.experiment import Resolved
from vmtoll.spec.service import ServiceRequests
from vmtoll.trial.service import BODIES, ask, wait, watch, wrong_answers

_MOST_NAMED = 3  # URLs in an error


def most_requests(resolved: Resolved, requests: ServiceRequests) -> int:
    """The most requests that a run sends to its service, up to the first look with `until`; without repeated trials."""
    experiment, loads = resolved.experiment, 0.0
    matrix = combinations(resolved)
    for _, scenario in matrix:
        workload = resolved.workloads[scenario.workload]
        rate_rps = scenario.load.value if scenario.load.kind is LoadKind.RATE else requests.service.at_most_rps
        if isinstance(workload, SearchWorkload):
            rate_rps = workload.between[1]
        loads += rate_rps * (experiment.warmup_s + experiment.duration_s)
    checks = 2 * min(BODIES, len(requests.distinct)) * len(matrix)
    at_start = 2 * len(requests.distinct) * len(resolved.environments)
    return round(experiment.blocks * (loads + checks)) + at_start


def compare_arms(session: Session, requests: ServiceRequests, tell: Listener) -> None:
    """Ask every arm twice for each URL, note the answers in the session and in service.json. Arms with a change are
    asked in their first trial; where every arm has one, the baseline's is put in place now. Raises ExperimentError when
    arms differ, a URL does not answer with 2xx, or the machine of an arm runs no such process.
    """
    experiment = session.resolved.experiment
    arms = [name for name in session.resolved.environments if name not in experiment.changes]
    if not arms:
        arms = [experiment.baseline_arm.environment]
        alter(session, arms[0], tell)
        wait(session.client, requests, arms[0])
    _find_processes(session, requests)
    rounds = {arm: [_ask(session, requests, arm) for _ in range(2)] for arm in arms}
    pages, complaints = list[ServicePage](), list[str]()
    for i, path in enumerate(requests.distinct):
        answers = {arm: [each[i] for each in of_arm] for arm, of_arm in rounds.items()}
        page = _page(i + 1, path, [answer for of_arm in answers.values() for answer in of_arm], requests, answers)
        complaints += _complaints(page, answers)
        pages.append(page)
    if complaints:
        more = f" (and {len(complaints) - _MOST_NAMED} more)" if len(complaints) > _MOST_NAMED else ""
        raise ExperimentError(f"service: {'; '.join(complaints[:_MOST_NAMED])}{more}", session.resolved.file)
    _check_recorded(session, pages)
    session.pages = {page.path: page for page in pages}
    session.fully_checked |= {(arm, requests.service.name) for arm in arms}
    document = {"arms": arms, "urls": [page.model_dump(mode="json") for page in pages]}
    session.store.write_json(SERVICE, document)
    found, declared = (tuple(p.path for p in pages if p.dynamic == kind) for kind in ("found", "declared"))
    tell(ServiceCompared(len(pages), tuple(arms), found, declared))
    if requests.service.cpu:
        for arm in session.resolved.environments:
            if arm not in session.inventory.machines:
                tell(NotMeasured(f"CPU time of {arm}", "the inventory names no machine with this vmtoll_environment"))


def _find_processes(session: Session, requests: ServiceRequests) -> None:
    """Find the service on the machines that are seen, before a request is sent. Raises ExperimentError."""
    for sut in session.inventory.under_test if requests.service.cpu else ():
        try:
            watch(session.line(sut), requests.service)
        except AgentError as error:
            raise ExperimentError(f"service.cpu: {error}", session.resolved.file) from error


def _ask(session: Session, requests: ServiceRequests, arm: str) -> list[PageAnswer]:
    try:
        return ask(session.client, requests, arm, requests.distinct)
    except AgentError as error:
        raise VmtollError(f"{arm}: the service does not answer: {error}") from error


def _page(
    number: int, path: str, answers: Sequence[PageAnswer], requests: ServiceRequests,
    by_arm: dict[str, list[PageAnswer]],
) -> ServicePage:  # fmt: skip
    """A URL's page; its body is that of the first arm."""
    is_declared = path in requests.dynamic
    is_found = any(first["sha256"] != second["sha256"] for first, second in by_arm.values())
    is_dynamic = is_declared or is_found
    return ServicePage(
        number=number,
        path=path,
        status=answers[0]["status"],
        length=None if is_dynamic else answers[0]["length"],
        sha256=None if is_dynamic else answers[0]["sha256"],
        dynamic="declared" if is_declared else "found" if is_found else "no",
        slowest_s=max(answer["took_s"] for answer in answers),
    )


def _complaints(page: ServicePage, by_arm: dict[str, list[PageAnswer]]) -> list[str]:
    """What is wrong with a URL: a status that is no success on an arm, or a body unlike the first arm's."""
    first = next(iter(by_arm))
    for arm, answers in by_arm.items():
        if bad := next((a["status"] for a in answers if not 200 <= a["status"] < 300), None):
            return [f"{page.path} answers {bad} on {arm}; {_way_out(bad)}"]
        if wrong_answers([page], answers[:1]):
            return [
                f"{page.path} has another body on {arm} ({answers[0]['length']} bytes) than on {first} "
                f"({by_arm[first][0]['length']} bytes); if that is meant, name it under `dynamic`"
            ]
    return []


def _way_out(status: int) -> str:
    if 300 <= status < 400:
        return "name the URL that it leads to, or give the cookie that it asks for in a file of --headers (`headers:`)"
    if status in (401, 403):
        return "give what it asks for, as `Authorization: …` or `Cookie: …`, in a file of --headers (`headers:`)"
    return "lower at_most_rps" if status == 429 else "take it off the list, or mend it"


def _check_recorded(session: Session, pages: Sequence[ServicePage]) -> None:
    """Raise ExperimentError if the service answers otherwise than when the run that is resumed began."""
    old_by_path = {page.path: page for page in read_pages(session.store.run_dir)}
    for page in pages if old_by_path else ():
        old = old_by_path.get(page.path)
        if old is None or (old.sha256 and page.sha256 and old.sha256 != page.sha256):
            raise ExperimentError(
                f"{page.path} answers otherwise than when the run began; leave out --resume to start another run",
                session.store.run_dir,
            )
