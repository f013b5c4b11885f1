"""A service of somebody else's, as a unit of systemd on a machine that is reached by SSH."""

from pathlib import Path

import pytest
import yaml

from tests.lab.records import measure, number
from tests.lab.the_lab import Ssh

pytestmark = pytest.mark.lab

PORT = 8099
LOADS = {"steady": {"kind": "rate", "rate_rps": 100, "deadline_ms": 500}, "users": {"users": [2]}}


def test_its_cpu_time_is_that_of_its_unit_and_a_change_of_its_machine_is_an_arm(
    lab: Path, ssh: Ssh, tmp_path: Path
) -> None:
    """The change is another start of the unit, whose answers wait for 10 ms."""
    address = ssh("metal", "hostname -I").split()[0]
    program = (
        "import http.server as h, os, time, sys\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "    protocol_version = 'HTTP/1.1'\n"
        "    wbufsize = -1\n"  # one write for headers and body: else they wait for the client's delayed ACK
        "    def do_GET(self):\n"
        "        time.sleep(os.path.exists('/run/shop.slow') * 0.01)\n"
        "        self.send_response(200); self.send_header('Content-Length', '5'); self.end_headers()\n"
        "        self.wfile.write(b'hello')\n"
        "    def log_message(self, *_): pass\n"
        f"h.ThreadingHTTPServer(('', {PORT}), H).serve_forever()\n"
    )
    ssh("metal", f"cat >/run/shop.py <<'END'\n{program}END\nsystemd-run --quiet --unit shop python3 /run/shop.py")
    try:
        experiment = tmp_path / "shop.yml"
        experiment.write_text(yaml.safe_dump({
            "question": "does the change slow the shop down?", "purpose": "smoke", "environments": ["metal", "slow"],
            "changes": {"slow": {"apply": "touch /run/shop.slow", "revert": "rm -f /run/shop.slow"}},
            "blocks": 2, "warmup_s": 0.2, "duration_s": 1.0,
            "service": {
                "address": f"http://{address}:{PORT}", "urls": ["/", "/cart?id=1"], "at_most_rps": 300,
                "cpu": {"unit": "shop.service"}, "loads": LOADS,
            },
        }))  # fmt: skip
        _, records = measure(experiment, lab / "inventory.yml", tmp_path / "results")
        assert ssh("metal", "ls /run/shop.slow 2>/dev/null || echo gone") == "gone"
        assert ssh("metal", "systemctl is-active shop") == "active", "nothing has stopped it"
    finally:
        ssh("metal", "systemctl stop shop; rm -f /run/shop.py /run/shop.slow")
    p50_us: dict[str, list[float]] = {}
    for record in records:
        assert record.primary, record.findings
        assert record.primary.successful == record.primary.requests
        assert 20 < number(record.primary.server_cpu_us_per_request) < 50_000
        p50 = record.primary.response_time.p50_us or record.primary.service_time.p50_us
        p50_us.setdefault(record.arm.environment, []).append(number(p50))
    assert min(p50_us["slow"]) > 10_000 > max(p50_us["metal"])
