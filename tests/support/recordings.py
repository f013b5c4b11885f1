"""Recorded output of the tools, as an adapter would get it."""

import json
from pathlib import Path
from typing import Any

from vmtoll import loadgen
from vmtoll.loadgen import ClosedLoad, MailLoad, OpenLoad, Output

RECORDED = Path(__file__).parent / "recorded"


def recorded(name: str) -> tuple[Any, Output]:
    """The load that was sent and what came back."""
    folder = RECORDED / name
    meta = json.loads((folder / "meta.json").read_text())
    stdout, stderr = ((folder / stream).read_text() for stream in ("stdout", "stderr"))
    files = {p.name: p.read_bytes() for p in folder.iterdir() if p.name not in {"meta.json", "stdout", "stderr"}}
    output = Output(stdout, stderr, meta["exit_status"], files, meta["timed_out"])
    if "protocol" in meta:
        keys = {key: meta[key] for key in ("protocol", "users", "requests", "message_bytes", "tag")}
        return MailLoad(host="127.0.0.1", port=25, domain="vmail.test", password="", body_sha256="", **keys), output
    urls, timeout_s = ["http://127.0.0.1/"], meta.get("timeout_s", 10.0)
    if "rate_rps" in meta:
        return OpenLoad(urls, meta["rate_rps"], meta["requests"], meta["keep_alive"], timeout_s), output
    return ClosedLoad(urls, meta["users"], meta["requests"], meta["keep_alive"], timeout_s), output


def parse(name: str) -> loadgen.ToolResult:
    return loadgen.get(name.split("-", maxsplit=1)[0]).parse(*recorded(name))
