"""The mail stack in the guest, stopped, and under its experiment's load, in which no message may be lost unseen."""

import csv
import imaplib
from pathlib import Path

import pytest
import yaml
from mail_stack import SERVER, stack_on
from planted import measured, once, reasons
from the_lab import Ssh

from workloads.runner.registry import Registry
from workloads.runner.run import run

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


def test_nothing_of_it_is_there_when_it_is_stopped(lab: Path, ssh: Ssh) -> None:
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


def rows_of(folder: Path, tmp_path: Path, environments: list[str], workloads: list[str]) -> list[dict[str, str]]:
    """One block of the experiment, as short as it can be; every trial must have counted."""
    keys = yaml.safe_load(Registry().experiment_file("mail-stack-2009").read_text())
    keys = {key: value for key, value in keys.items() if key not in {"scales", "claims", "noise_floor"}}
    size = {"purpose": "smoke", "blocks": 1, "warmup_s": 0.3, "duration_s": 0.6}
    path = tmp_path / "mail.yml"
    path.write_text(yaml.safe_dump({**keys, **size, "environments": environments, "workloads": workloads}))
    found = run(path, folder / "inventory.yml", tmp_path / "results")
    with (found / "trials.csv").open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    assert len(rows) == len(environments) * len(workloads)
    for row in rows:
        assert row["verdict"] in {"valid", "suspect"}, row["reasons"]
        assert float(row["throughput_rps"]) > 0 and float(row["server_cpu_us_per_request"]) > 0
        assert float(row["service_time_p99_us"]) >= float(row["service_time_p50_us"]) > 0
    return rows


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
    for row in rows_of(lab, tmp_path, environments, workloads):
        assert int(row["messages_accepted"]) == int(row["messages_delivered"]) == int(row["requests"])
        assert (row["messages_lost"], row["messages_doubled"]) == ("0", "0")


def test_mailboxes_are_read_under_load(lab: Path, tmp_path: Path) -> None:
    for row in rows_of(lab, tmp_path, ["metal"], ["mail-imap", "mail-pop3"]):
        assert row["messages_accepted"] == ""


def test_a_message_that_is_lost_or_there_twice_is_noticed(lab: Path, ssh: Ssh, tmp_path: Path) -> None:
    fault = f"cd {MAILBOXES} && set -- $(grep -l measured */Maildir/new/*) && rm $1 && cp $2 $2.twice"
    workload = yaml.safe_load(Registry().workload_file("mail-smtp").read_text())
    (row,) = measured(
        tmp_path,
        once("counts the messages", lambda: ssh("metal", fault)),
        {**workload, "keep_alive": None},
        servers=[SERVER],
    )
    assert row["verdict"] == "invalid"
    found = reasons(row)["lost-mail"]
    assert found.endswith("1 are in no mailbox, 1 are there twice")
    assert (row["messages_lost"], row["messages_doubled"]) == ("1", "1")
