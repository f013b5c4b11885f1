"""A service in place of vmtoll's own server: its loads, and a check of its answers before and after each."""

import random
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

from vmtoll.agent.protocol import PageAnswer
from vmtoll.loadgen import ClosedLoad, OpenLoad, ToolLoad
from vmtoll.loadgen.base import Guard
from vmtoll.machines.connection import AgentLine
from vmtoll.model.finding import Finding
from vmtoll.model.inventory import Host
from vmtoll.model.service import MOST_IN_FLIGHT, Service, ServicePage
from vmtoll.spec.service import ServiceRequests
from vmtoll.trial.execution import JointExecution
from vmtoll.trial.loads import LoadDriver, parse_results

BODIES = 4  # URLs that are asked before a load, and after it
# A service is silent after this time without an answer, or SILENCE_TIMES its slowest answer at the start.
SILENCE_S, SILENCE_TIMES = 1.5, 2.0
_LIMIT_S = 60.0
START_S = 60.0  # until a service that a change has started accepts connections


def ask(line: AgentLine, requests: ServiceRequests, environment: str, paths: Sequence[str]) -> list[PageAnswer]:
    """Ask a service of an environment for these paths, from this client. Raises AgentError, HostLostError."""
    service = requests.service
    limit_s = _LIMIT_S + len(paths) * (10 + 1 / service.at_most_rps)
    answers: list[PageAnswer] = line.call(
        "service_pages", limit_s, address=requests.addresses[environment], paths=list(paths),
        headers=dict(requests.headers), rate_rps=service.at_most_rps, ca=requests.ca, verify=service.verify,
    )  # fmt: skip
    return answers


def wait(line: AgentLine, requests: ServiceRequests, environment: str) -> None:
    """Wait until an environment's service accepts connections from this client. Raises AgentError, HostLostError."""
    host, port = _remote(requests.addresses[environment])
    line.call("reaches", 2 * START_S, host=host, port=port, limit_s=START_S)


def _remote(address: str) -> tuple[str, int]:
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def watch(line: AgentLine, service: Service) -> int:
    """Account the CPU time of a service's processes on this machine; return the CPUs that they may use.

    Raises AgentError if there are none, HostLostError, ValueError for a service without `cpu`.
    """
    if service.cpu is None:
        raise ValueError(f"{service.name} has no `cpu`")
    kind, name = next(iter(service.cpu.model_dump(exclude_none=True).items()))
    return int(line.call("service_watch", _LIMIT_S, name=service.name, kind=kind, value=name)["cores"])


def wrong_answers(pages: Iterable[ServicePage], answers: Iterable[PageAnswer]) -> list[str]:
    """Descriptions of the answers that are not those of the start; of a dynamic page only the status counts."""
    wrong = []
    for page, answer in zip(pages, answers, strict=True):
        if answer["status"] != page.status:
            wrong.append(f"URL {page.number} (status {page.status} -> {answer['status']})")
        elif page.sha256 is not None and answer["sha256"] != page.sha256:
            wrong.append(f"URL {page.number} ({page.length} -> {answer['length']} bytes, or other ones)")
    return wrong


class ServiceDriver(LoadDriver):
    """Builds and sends the loads of one trial on a service: guarded, and never above its `at_most_rps`."""

    @property
    def requests(self) -> ServiceRequests:
        """What is asked of the service. Raises RuntimeError in an experiment without one."""
        if (requests := self.session.resolved.requests) is None:
            raise RuntimeError("the experiment has no service")
        return requests

    @property
    def address(self) -> str:
        return self.requests.addresses[self.arm.environment]

    @property
    def remote(self) -> tuple[str, int]:
        return _remote(self.address)

    def closed_load(self, tool: str, users: int, rate_rps: float | None, duration_s: float) -> ClosedLoad:
        """The users' loop for `duration_s`, whatever its rate."""
        at_most_rps = self.requests.service.at_most_rps
        requests = max(users, round(at_most_rps * duration_s))
        return ClosedLoad(
            self._urls(), users, requests, self.workload.keep_alive, http=self.transport.http,
            guard=self._guard(duration_s),
        )  # fmt: skip

    def open_load(self, rate_rps: float, duration_s: float, to: Host | None = None) -> OpenLoad:
        requests = max(len(self.fleet.lines), round(rate_rps * duration_s))
        return OpenLoad(
            self._urls(), rate_rps, requests, self.workload.keep_alive, http=self.transport.http,
            guard=self._guard(duration_s),
        )  # fmt: skip

    def warm(self, tool: str, users: int, duration_s: float) -> float:
        """Run the closed loop for `duration_s`; return the rate that bounds it."""
        self.run(tool, self.closed_load(tool, users, None, duration_s), duration_s)
        return self.requests.service.at_most_rps

    def run(self, tool: str, load: ToolLoad, expected_s: float | None) -> JointExecution:
        """Send a load. Raises ServiceFailingError when the guard stopped it, ToolError, HostLostError."""
        joint = super().run(tool, load, expected_s)
        parse_results(tool, joint)
        return joint

    def _urls(self) -> list[str]:
        """The URLs; each block begins elsewhere in the list, and all arms of a block at the same URL."""
        paths = self.requests.paths
        begin = random.Random(f"{self.session.order_seed}:{self.spec.block}").randrange(len(paths))
        return [self.address + path for path in (*paths[begin:], *paths[:begin])]

    def _guard(self, duration_s: float) -> Guard:
        requests, clients = self.requests, len(self.fleet.lines)
        slowest_s = max((page.slowest_s for page in self.session.pages.values()), default=0.0)
        return Guard(
            at_most_rps=requests.service.at_most_rps / clients,
            in_flight=max(1, MOST_IN_FLIGHT // clients),
            silence_s=max(SILENCE_S, SILENCE_TIMES * slowest_s),
            duration_s=duration_s,
            headers=requests.headers,
            ca=requests.ca,
            verify=requests.service.verify,
        )


class TrialService:
    """The service in one trial, in place of a server of vmtoll's: nothing is started or stopped."""

    is_ours = False

    def __init__(self, driver: ServiceDriver) -> None:
        self.driver, self.session = driver, driver.session
        self.bodies_checked = 0
        self.wrong_bodies: list[str] = []

    def start(self) -> tuple[int | None, list[Finding]]:
        """Wait for a service that a change has started, and find its processes on its machine, if that is seen; return
        the cores that they may use.

        Raises AgentError, HostLostError.
        """
        service, environment = self.driver.requests.service, self.driver.arm.environment
        if environment in self.session.resolved.experiment.changes:
            wait(self.driver.client, self.driver.requests, environment)
        cores = [watch(line, service) for line in self.driver.machines.suts] if service.cpu else []
        return (cores[0] if cores else None), []

    def handshake(self) -> list[Finding]:
        """None: the load's TLS is the service's own."""
        return []

    def check_bodies(self, when: str) -> None:
        """Ask for a few URLs, on the first trial of a change for all, and compare the answers with those of the start.

        Raises AgentError, HostLostError.
        """
        pages, environment = list(self.session.pages.values()), self.driver.arm.environment
        subject = (environment, self.driver.scenario.server)
        if subject in self.session.fully_checked:
            rng = random.Random(f"{self.session.order_seed}:{self.driver.spec.key}:{when}")
            pages = rng.sample(pages, k=min(BODIES, len(pages)))
        self.session.fully_checked.add(subject)
        answers = ask(self.driver.client, self.driver.requests, environment, [page.path for page in pages])
        self.bodies_checked += len(answers)
        self.wrong_bodies += wrong_answers(pages, answers)

    def stop(self) -> None:
        """Leave the service alone."""
