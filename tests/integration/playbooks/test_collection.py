"""The roles as a collection: packed, installed elsewhere, and used by a playbook that knows nothing of vmtoll."""

import os
import subprocess
import sys
from pathlib import Path

import yaml

from vmtoll.paths import PLAYBOOKS

BIN = Path(sys.executable).parent
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq"


def ansible(folder: Path, *argv: object) -> str:
    """Run a program of Ansible in a folder, without the project's settings; what it printed."""
    (folder / "ansible.cfg").touch()
    environment = os.environ | {"ANSIBLE_CONFIG": str(folder / "ansible.cfg"), "ANSIBLE_COLLECTIONS_PATH": str(folder)}
    command: list[str | Path] = [BIN / str(argv[0]), *map(str, argv[1:])]
    return subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def test_a_role_of_the_collection_works_in_a_playbook_of_somebody_else(tmp_path: Path) -> None:
    ansible(tmp_path, "ansible-galaxy", "collection", "build", PLAYBOOKS, "--output-path", tmp_path)
    (archive,) = tmp_path.glob("vmtoll-lab-*.tar.gz")
    ansible(tmp_path, "ansible-galaxy", "collection", "install", "--offline", "-p", tmp_path, archive)
    host = tmp_path / "host"
    (host / GOVERNOR).mkdir(parents=True)
    (host / "sys/devices/system/cpu/present").write_text("0\n")
    (host / GOVERNOR / "scaling_governor").write_text("powersave\n")
    (host / GOVERNOR / "scaling_available_governors").write_text("performance powersave\n")
    variables = {"host_tuning_settings": {"governor": "performance"}, "host_tuning_root": str(host)}
    role = {"role": "vmtoll.lab.host_tuning", "vars": variables}
    play = {"hosts": "localhost", "connection": "local", "gather_facts": False, "roles": [role]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    python = f"ansible_python_interpreter={sys.executable}"
    assert "changed=1" in ansible(tmp_path, "ansible-playbook", "-i", "localhost,", "-e", python, "play.yml")
    assert (host / GOVERNOR / "scaling_governor").read_text().strip() == "performance"
