"""Docker in podman's place: which registered runtime is meant, and what Docker cannot do."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from vmtoll.agent.docker import registered_name
from vmtoll.agent.protocol import SandboxOptions, ServerSpec
from vmtoll.agent.sandboxes import Sandbox

OPTIONS: SandboxOptions = {
    "name": "web", "runtime": "runc", "runtime_path": None, "platform": None, "stack": "own", "flags": None,
    "seccomp": None, "user_namespace": None, "content": None, "rootfs": "/", "image": None, "network": "bridge",
    "network_namespace": None, "address": "192.0.2.1", "prefix": None, "cpus": "0", "memory_mib": 256,
}  # fmt: skip
SPEC: ServerSpec = {"name": "nginx", "argv": ["/usr/sbin/nginx"], "ports": [8080]}


@pytest.fixture
def runsc(tmp_path: Path) -> Path:
    program = tmp_path / "runsc"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("args", [["--platform=systrap"], ["--platform", "systrap"], ["-platform=systrap"]])
def test_a_runtime_is_found_by_its_program_and_all_its_flags(runsc: Path, args: list[str]) -> None:
    registered = {
        "runsc": {"path": str(runsc)},
        "other": {"path": "/elsewhere/runsc", "runtimeArgs": args},
        "more": {"path": str(runsc), "runtimeArgs": [*args, "--debug"]},
        "sandbox": {"path": str(runsc), "runtimeArgs": args},
    }
    assert registered_name(registered, str(runsc), ["platform=systrap"]) == "sandbox"
    assert registered_name(registered, str(runsc), []) == "runsc"
    del registered["sandbox"]
    with pytest.raises(RuntimeError) as caught:
        registered_name(registered, str(runsc), ["platform=systrap"])
    assert str(caught.value) == (
        f'Docker has no runtime {runsc} with platform=systrap; write "runtimes": {{"runsc-platform-systrap": {{"path": '
        f'"{runsc}", "runtimeArgs": ["--platform=systrap"]}}}} into /etc/docker/daemon.json, then run `systemctl '
        "reload docker`"
    )


def test_the_runtime_of_docker_itself_has_a_name_of_its_own_first(runsc: Path) -> None:
    registered = {name: {"path": str(runsc)} for name in ("io.containerd.runc.v2", "runc")}
    assert registered_name(registered, str(runsc), []) == "runc"


@pytest.fixture
def docker(monkeypatch: pytest.MonkeyPatch, runsc: Path) -> None:
    """A machine with Docker alone, which has runc."""
    monkeypatch.setattr(shutil, "which", lambda name, **_: None if name == "podman" else str(runsc))
    answers = {"info": '{"runc": {"path": "runc"}}', "image": "sha256:1"}
    monkeypatch.setattr(Sandbox, "call", lambda _, *words, **__: answers[words[0]])


def sandbox(**options: Any) -> Sandbox:
    return Sandbox({**OPTIONS, **options}, Path("/root/of/web"))  # type: ignore[typeddict-item]


def test_the_command_line(docker: None, tmp_path: Path) -> None:
    command = sandbox(rootfs=str(tmp_path)).command(SPEC)
    assert command[:5] == ["docker", "run", "--runtime=runc", "--pull=never", "--detach"]
    assert {"--network=bridge", "--publish=8080:8080", "--cpuset-cpus=0", "--memory=256m", "--read-only"} <= {*command}
    assert f"--volume={tmp_path}/srv/vmtoll:/srv/vmtoll:ro" in command
    assert [command[-2].partition(":")[0], command[-1]] == ["vmtoll-rootfs", "/usr/sbin/nginx"]
    of_podman = ("--rootfs", "--no-hosts", "--dns", "--read-only-tmpfs", "--runtime-flag")
    assert not [word for word in command if word.startswith(of_podman) or "notmpcopyup" in word]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"network": "namespace", "network_namespace": "lab"}, "set vmtoll_network to bridge or host"),
        ({"user_namespace": True}, "leave user_namespace out"),
        ({"image": "localhost/x@sha256:0"}, "set vmtoll_rootfs to it"),
        ({"rootfs": "podman:web"}, "set vmtoll_rootfs to it"),
    ],
)
def test_what_docker_does_not_do(docker: None, options: dict[str, Any], words: str) -> None:
    with pytest.raises(RuntimeError, match=f"^Docker .*{words}$"):
        sandbox(**options).command(SPEC)
