"""The mail stack in the guest, stopped, and under its experiment's load, in which no message may be lost unseen."""

import imaplib
from pathlib import Path

import pytest
import yaml

from tests.lab.faults import measured, once
from tests.lab.mail_stack import SERVER, stack_on
from tests.lab.records import Records, measure, number, primary, undisturbed
from tests.lab.the_lab import Ssh
from vmtoll.model.event import Phase
from vmtoll.model.finding import Code, Validity
from vmtoll.model.percentiles import FEWEST
from vmtoll.spec.catalog import Registry

pytestmark = pytest.mark.lab

MAILBOXES = "/var/lib/vmtoll-mail"


@pytest.mark.guest_minutes
def test_the_guest_holds_to_the_main_points_too(lab: Path) -> None:
    with stack_on("kvm-default") as guest:
        session = imaplib.IMAP4("127.0.0.1", guest.ports[143], timeout=60)
        with pytest.raises(imaplib.IMAP4.error, match="PRIVACYREQUIRED"):
            session.login("user0@vmail.test", guest.password)
        session.logout()
        guest.submit("text", "user2+ubuntu@vmail.test", "into the inbox")
        assert guest.settle() == 0
        assert guest.subjects("user2@vmail.test") == ["into the inbox"]


def test_a_stopped_server_leaves_no_listener(lab: Path, ssh: Ssh) -> None:
    with stack_on("metal"):
        assert "user0@vmail.test:{SSHA256}" in ssh("metal", f"cat /run/vmtoll-{SERVER}/accounts")
        assert ssh("metal", "stat -c %a /etc/vmtoll/mail-key.pem") == "600"
    state = ssh(
        "metal", f"ls /run/vmtoll-{SERVER} 2>&1; systemctl is-enabled vmtoll-{SERVER} postfix dovecot; ss -Hltn"
    )
    assert "No such file" in state and "masked" in state and "enabled" not in state.split()
    assert not any(f":{port} " in state for port in (25, 110, 143, 465, 587, 4190))


@pytest.mark.guest_minutes
def test_each_machine_has_made_its_own_key(lab: Path, ssh: Ssh) -> None:
    with stack_on("metal"), stack_on("kvm-default"):
        keys = [
            ssh(machine, "stat -c %a /etc/vmtoll/mail-key.pem; sha256sum /etc/vmtoll/mail-key.pem")
            for machine in ("metal", "kvm")
        ]
    assert all(key.startswith("600") for key in keys) and keys[0] != keys[1]


def records_of(folder: Path, tmp_path: Path, environments: list[str], workloads: list[str]) -> Records:
    """One block of the experiment, as short as it can be; every trial must have counted."""
    keys = yaml.safe_load(Registry().experiment_file("mail-stack-2009").read_text())
    keys = {key: value for key, value in keys.items() if key not in {"scales", "claims", "noise_floor"}}
    size = {"purpose": "smoke", "blocks": 1, "warmup_s": 0.3, "duration_s": 0.6}
    path = tmp_path / "mail.yml"
    path.write_text(yaml.safe_dump({**keys, **size, "environments": environments, "workloads": workloads}))
    _, records = measure(path, folder / "inventory.yml", tmp_path / "results")
    assert len(records) == len(environments) * len(workloads)
    for record in records:
        assert undisturbed(record) == set(), record.findings
        load = primary(record)
        assert number(load.throughput_rps) > 0 and number(load.server_cpu_us_per_request) > 0
        assert number(load.service_time.p50_us) > 0
        p99_us, enough = load.service_time.p99_us, number(load.transactions) >= FEWEST["p99"]
        assert number(p99_us) >= number(load.service_time.p50_us) if enough else p99_us is None
    return records


@pytest.mark.parametrize(
    ("environments", "workloads"),
    [
        (["metal"], ["mail-smtp", "mail-submission"]),
        pytest.param(["kvm-default"], ["mail-smtp", "mail-submission"], marks=pytest.mark.guest_minutes),
    ],
)
def test_the_experiment_counts_every_message(
    lab: Path, tmp_path: Path, environments: list[str], workloads: list[str]
) -> None:
    for record in records_of(lab, tmp_path, environments, workloads):
        counts = record.counts
        assert counts.messages_accepted == counts.messages_delivered == number(primary(record).requests)
        assert (counts.messages_lost, counts.messages_doubled) == (0, 0)


def test_mailboxes_are_read_under_load(lab: Path, tmp_path: Path) -> None:
    for record in records_of(lab, tmp_path, ["metal"], ["mail-imap", "mail-pop3"]):
        assert record.counts.messages_accepted is None


@pytest.mark.injects(Code.LOST_MAIL)
def test_lost_and_duplicated_messages_are_detected(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    fault = f"cd {MAILBOXES} && set -- $(grep -l measured */Maildir/new/*) && rm $1 && cp $2 $2.twice"
    workload = yaml.safe_load(Registry().workload_file("mail-smtp").read_text())
    (record,) = measured(
        tmp_path,
        once(Phase.COUNTING, lambda: ssh("metal", fault)),
        {**workload, "keep_alive": None},
        servers=[SERVER],
    )
    assert record.validity is Validity.INVALID
    assert undisturbed(record) == {Code.LOST_MAIL}
    assert (record.counts.messages_lost, record.counts.messages_doubled) == (1, 1)
