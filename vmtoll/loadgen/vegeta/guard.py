"""Run vegeta and follow its results; end it when requests fail. The client runs this file with Python 3.9 or newer.

`plan.json`: `argv` (of `vegeta attack`), `urls`, `headers`, `requests` (to send in all), `interval_s` (between two, at
least), `duration_s` (time after which the load ends; null: when all are sent), `users` (of a closed loop; null: an open
loop), `silence_s`.

Every result is a line of requests.log, as soon as it is there: timestamp (ns), status, latency (ns), place in the
schedule. errors.log has the first different errors, without URLs. If the load was stopped, stopped.json says why.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

# The load stops when more than MOST_FAILED of the last WINDOW results failed.
MOST_FAILED, WINDOW = 1, 100
STOPPED = 3  # exit status
_MOST_ERRORS = 20
# Time that vegeta may take to start on a busy client, besides `silence_s`.
_STARTING_S = 3.0
# What vegeta logs for a worker that found the list of targets used up: no request was sent.
_NO_TARGET = "no targets to attack"


class Watch:
    """The results so far, and whether the service fails."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.recent: deque[bool] = deque(maxlen=WINDOW)  # True: failed
        self.results = 0
        self.errors: list[str] = []
        self.last_s = time.monotonic()
        self.first_s: float | None = None  # time of the first result
        self.stopped: dict[str, Any] | None = None

    def add(self, status: int, error: str) -> None:
        """Take note of a result. A redirect fails, too: vegeta follows none."""
        self.last_s = time.monotonic()
        if self.first_s is None:
            self.first_s = self.last_s
        if error == _NO_TARGET:
            return
        self.results += 1
        failed = not 200 <= status < 300
        self.recent.append(failed)
        text = re.sub(r'"[^"]*"', "URL", error) or f"status {status}"
        if failed and text not in self.errors and len(self.errors) < _MOST_ERRORS:
            self.errors.append(text[:200])
        if sum(self.recent) > MOST_FAILED:
            self.stop("failed")

    def look(self) -> None:
        """Stop if results are due and none has come for `silence_s`."""
        if self.results >= self.plan["requests"]:
            return
        if self.first_s is None:
            due_s = self.last_s + _STARTING_S
        elif self.plan["users"] is None:
            due_s = max(self.last_s, self.first_s + self.results * self.plan["interval_s"])
        else:
            due_s = self.last_s + self.plan["interval_s"]
        if time.monotonic() - due_s > self.plan["silence_s"]:
            self.stop("silent")

    def stop(self, why: str) -> None:
        if self.stopped is None:
            self.stopped = {
                "why": why, "failed": sum(self.recent), "of": len(self.recent), "results": self.results,
                "error": self.errors[0] if self.errors else "",
            }  # fmt: skip


def feed(plan: dict[str, Any], attack: subprocess.Popen[bytes]) -> None:
    """Write the targets, as JSON, until all are there or vegeta has ended. No header is on a command line."""
    headers = {name: [value] for name, value in plan["headers"].items()}
    urls = [json.dumps({"method": "GET", "url": url, "header": headers}).encode() + b"\n" for url in plan["urls"]]
    with contextlib.suppress(BrokenPipeError), attack.stdin as stdin:  # type: ignore[union-attr]
        for number in range(plan["requests"]):
            stdin.write(urls[number % len(urls)])


def follow(watch: Watch, encode: subprocess.Popen[str], attack: subprocess.Popen[bytes]) -> None:
    """Log every result; kill vegeta as soon as the service fails."""
    with open("requests.log", "w", encoding="ascii") as log:  # noqa: PTH123
        for row in csv.reader(encode.stdout):  # type: ignore[arg-type]
            if row[5] == _NO_TARGET and watch.plan["users"]:
                continue
            log.write(f"{row[0]} {row[1]} {row[2]} {row[8]}\n")
            watch.add(int(row[1]), row[5])
            if watch.stopped:
                attack.kill()


def supervise(watch: Watch, attack: subprocess.Popen[bytes]) -> None:
    """End vegeta at its time after the first result, or when the service is silent."""
    duration_s, ended = watch.plan["duration_s"], False
    while attack.poll() is None:
        end_s = None if duration_s is None or watch.first_s is None else watch.first_s + duration_s
        if end_s is not None and not ended and time.monotonic() >= end_s:
            attack.send_signal(signal.SIGINT)  # it waits for the answers to what it has sent
            ended = True
        watch.look()
        if watch.stopped:
            attack.kill()
        time.sleep(0.05)


def main() -> int:
    plan = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    pipe = subprocess.PIPE
    attack = subprocess.Popen(plan["argv"], stdin=pipe, stdout=pipe)
    watch = Watch(plan)
    feeding = threading.Thread(target=feed, args=(plan, attack), daemon=True)
    feeding.start()
    threading.Thread(target=supervise, args=(watch, attack), daemon=True).start()
    try:
        argv = ["vegeta", "encode", "-to=csv"]
        with subprocess.Popen(argv, stdin=attack.stdout, stdout=pipe, text=True) as encode:
            attack.stdout.close()  # type: ignore[union-attr]
            follow(watch, encode, attack)
        status = attack.wait()
    finally:
        attack.kill()
    feeding.join()
    Path("errors.log").write_text("".join(f"{error}\n" for error in watch.errors), encoding="utf-8")
    if watch.stopped:
        Path("stopped.json").write_text(json.dumps(watch.stopped), encoding="utf-8")
        return STOPPED
    return status


if __name__ == "__main__":
    sys.exit(main())
