"""Print whether libvirt would accept definitions of guests, as one line of JSON. Defines and changes nothing.

Runs on the host as `python3 - URI FILE`: standard library only. The file is a JSON list of definitions; the answer is a
list of the same length with what is wrong with each, an empty text if nothing is.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree


def failure(argv: "list[str]") -> str:
    """Run a program and return its error on one line; empty if it succeeds."""
    env = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]}: {getattr(error, 'strerror', '') or 'no answer in time'}"
    if not done.returncode:
        return ""
    printed = done.stderr.strip() or done.stdout.strip()
    lines = [line for line in printed.splitlines() if "fails to validate" not in line] or [printed]
    return " ".join(lines[-1].rpartition("error: ")[2].rpartition("error : ")[2].split())[:300]


def refusal(uri: str, xml: str) -> str:
    """Why libvirt refuses a definition, by its schema or by parsing it as it does to define it; empty if it accepts.

    For that libvirt makes a tap device of each card. The libvirt of a user that is not root may not: then it gets the
    definition without the cards, and only the schema has checked these.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "domain.xml")
        file.write_text(xml, encoding="utf-8")
        native = ["virsh", "-c", uri, "domxml-to-native", "qemu-argv", str(file)]
        refused = failure(["virt-xml-validate", str(file), "domain"]) or failure(native)
        if "/dev/net/tun" in refused:
            domain = ElementTree.fromstring(xml)
            for devices in domain.iterfind("devices"):
                devices[:] = [device for device in devices if device.tag != "interface"]
            file.write_text(ElementTree.tostring(domain, encoding="unicode"), encoding="utf-8")
            refused = failure(native)
        return refused


if __name__ == "__main__":
    print(json.dumps([refusal(sys.argv[1], xml) for xml in json.loads(Path(sys.argv[2]).read_text("utf-8"))]))
