"""Dynamic responses by Lua: what a script gets and gives, and what it cannot do to the worker."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from abuse import cpu_ticks
from wire import AS_WHO, BINARY, SANITIZED, Server

SCRIPT = """
local count = 0
local hold = {}
local pages = {
  echo = function(r)
    return 200, r.method .. " " .. r.path .. " " .. r.query .. " " .. (r.fields["x-a"] or "") .. " " .. r.body,
      {["Content-Type"] = "text/plain", ["X-B"] = "b"}
  end,
  count = function() count = count + 1; return 200, tostring(count) end,
  empty = function() return 204 end,
  large = function() return 200, string.rep("x", 3000000) end,
  fail = function() error("on purpose") end,
  forever = function() while true do pcall(function() while true do end end) end end,
  hog = function() for i = 1, 1e9 do hold[i] = string.rep("x", 1000) .. i end end,
  final = function()
    setmetatable({}, {__gc = function() while true do end end})
    for i = 1, 1e5 do hold = {i} end
    return 200
  end,
  meta = function() return 200, setmetatable({}, {__index = {text = "meta"}}).text end,
  split = function() return 200, "", {["X-B"] = "a\\r\\nX-C: b"} end,
  length = function() return 200, "", {["Content-Length"] = "5"} end,
  status = function() return "ok" end,
  files = function() return 200, tostring(io) .. tostring(os) .. tostring(require) .. tostring(load) end,
}
function handle(r)
  local page = pages[r.path:match("^/lua/(%a+)")]
  if not page then return 404, "no such page" end
  return page(r)
end
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "site.lua"
    path.write_text(SCRIPT)
    return path


@pytest.fixture(scope="module")
def server(root: Path, script: Path, workers: int) -> Iterator[Server]:
    with Server(root, "--lua-script", str(script), "--workers", str(workers)) as running:
        yield running


def post(body: str, *fields: str) -> bytes:
    return "\r\n".join(["POST /lua/echo?q=1 HTTP/1.1", "Host: x", *fields, "", body]).encode()


def test_request_in_response_out(server: Server) -> None:
    response = server.get("/lua/echo/%41?q=1", "X-A: v")
    assert response.body == b"GET /lua/echo/A q=1 v "
    assert response["Content-Type"] == "text/plain" and response["X-B"] == "b" and response["Date"]
    assert server.get("/lua/echo", method="HEAD")["Content-Length"] == "17"
    assert server.get("/lua/none").status == 404
    assert server.get("/ten.txt").body == b"0123456789"


def test_no_content(server: Server) -> None:
    data = server.raw(b"GET /lua/empty HTTP/1.1\r\nHost: x\r\n\r\n")
    assert data.startswith(b"HTTP/1.1 204 ") and b"Content-Length" not in data and data.endswith(b"\r\n\r\n")


def test_bodies(server: Server) -> None:
    chunked = post("2\r\nab\r\n1;x\r\nc\r\n0\r\n\r\n", "Transfer-Encoding: chunked")
    first, second, third = server.ask(post("abc", "Content-Length: 3") + chunked + post("", "Content-Length: 0"))
    assert first.body == second.body == b"POST /lua/echo q=1  abc"
    assert third.body == b"POST /lua/echo q=1  "
    large = "y" * 900_000
    (response,) = server.ask(post(large, f"Content-Length: {len(large)}"))
    assert response.body.endswith(large.encode())
    assert [r.status for r in server.ask(post(""))] == [411]
    assert [r.status for r in server.ask(post("", "Content-Length: 9000000"))] == [413]
    interim = server.ask(post("abc", "Content-Length: 3", "Expect: 100-continue"))
    assert interim[0].body.endswith(b"abc")


def test_large_responses_in_a_pipeline(server: Server) -> None:
    request = b"GET /lua/large HTTP/1.1\r\nHost: x\r\n\r\n"
    assert [len(r.body) for r in server.ask(request * 4)] == [3_000_000] * 4


@pytest.mark.parametrize("page", ["fail", "split", "length", "status", "final"])
def test_errors_are_500(server: Server, page: str) -> None:
    workers = server.workers()
    assert server.get(f"/lua/{page}").status == 500
    assert server.get("/lua/echo").status == 200
    assert server.workers() == workers


def test_bounds(server: Server) -> None:
    workers = server.workers()
    start = time.monotonic()
    assert server.get("/lua/forever").status == 500
    assert time.monotonic() - start < 3
    assert server.get("/lua/hog").status == 500
    assert server.get("/ten.txt").status == 200
    assert server.get("/lua/echo").status == 200, "what filled the memory is gone"
    assert server.workers() == workers


# Each takes seconds in few instructions, most of them calls of C functions that are short one by one.
LONG = {
    "rep": "for i = 1, 9000 do string.rep('x', 8000000) end",
    "gsub": "local t = string.rep('ab', 200000) for i = 1, 9000 do t:gsub('a', 'c') end",
    "upper": "local t = string.rep('ab', 2000000) for i = 1, 9000 do t:upper() end",
    "reverse": "local t = string.rep('ab', 2000000) for i = 1, 9000 do t:reverse() end",
    "find": "local t = string.rep('a', 1000000) for i = 1, 9000 do t:find('[b]') end",
    "format": "local t = string.rep('x', 3000000) for i = 1, 9000 do string.format('%s%s', t, t) end",
    "concat": "local t = {} for i = 1, 100000 do t[i] = 'abcdefgh' end for i = 1, 9000 do table.concat(t, ',') end",
    "sort": "local t = {9, 1, 8, 2, 7, 3, 6, 4, 5} for j = 1, 12 do table.move(t, 1, #t, #t + 1) end "
    "for i = 1, 9000 do table.sort(table.move(t, 1, #t, 1, {})) end",
    "comparison": "local t = {} for i = 1, 60000 do t[i] = -i end while true do "
    "table.sort(t, function(a, b) return a > b end) table.sort(t, function(a, b) return a < b end) end",
    "pcall": "while true do pcall(string.rep, 'x', 4000000) end",
    "xpcall": "xpcall(function() while true do end end, function() while true do end end)",
    "xpcall of a C function": "while true do xpcall(string.rep, function(e) return e end, 'x', 4000000) end",
}


@pytest.mark.parametrize("name", LONG)
def test_lua_time_bounds(root: Path, tmp_path: Path, name: str) -> None:
    """The worker's CPU time is a small multiple of `lua_time`, and it serves on."""
    path = tmp_path / "long.lua"
    path.write_text(f"function handle() {LONG[name]} return 200 end")
    limit_s = 0.5 if SANITIZED else 0.1
    with Server(root, "--lua-script", str(path), "--lua-time", f"{limit_s * 1000:.0f}ms") as server:
        (worker,) = server.workers()
        before = cpu_ticks(worker)
        (response,) = server.ask(b"GET /lua/ HTTP/1.1\r\nHost: x\r\n\r\n", timeout=60)
        assert response.status == 500
        assert (cpu_ticks(worker) - before) / os.sysconf("SC_CLK_TCK") < 5 * limit_s
        assert "out of time" in server.messages()
        assert server.get("/ten.txt").status == 200
        assert server.workers() == [worker]


def test_xpcall(root: Path, tmp_path: Path) -> None:
    """The results, or false and what the handler makes of the error; an error of the handler is a result, too."""
    path = tmp_path / "xpcall.lua"
    path.write_text("""
        local function handler(e) return "caught " .. tostring(e), "more" end
        local function text(...)
          local t = table.pack(...)
          for i = 1, t.n do t[i] = tostring(t[i]) end
          return table.concat(t, ",")
        end
        function handle()
          local calls = {{math.max, 3, 1}, {error, "it", 0}, {error}, {pcall, error, "in", 0}}
          local lines = {}
          for i, call in ipairs(calls) do lines[i] = text(xpcall(call[1], handler, table.unpack(call, 2))) end
          lines[5] = text(xpcall(error, error, "twice", 0))
          lines[6] = text(pcall(xpcall, error, "no function"))
          return 200, table.concat(lines, ";")
        end
    """)
    with Server(root, "--lua-script", str(path)) as server:
        assert server.get("/lua/").body.decode().split(";") == [
            "true,3",
            "false,caught it,more",
            "false,caught nil,more",
            "true,false,in",
            "false,twice",
            "false,bad argument #2 to 'xpcall' (function expected, got string)",
        ]


def test_a_script_that_is_out_of_reach_recovers(root: Path, script: Path, tmp_path: Path) -> None:
    """It was read once, through a symlink to where the sandbox does not let anybody read."""
    (tmp_path / "link.lua").symlink_to(script)
    with Server(root, "--lua-script", str(tmp_path / "link.lua")) as server:
        assert server.get("/lua/echo").status == 200
        (tmp_path / "link.lua").unlink()
        assert server.get("/lua/hog").status == 500
        assert server.get("/lua/echo").status == 200


def test_metatables_are_to_be_had(server: Server) -> None:
    assert server.get("/lua/meta").body == b"meta"


def test_another_method(server: Server) -> None:
    refused = server.get("/lua/echo", method="TRACE")
    assert refused.status == 405
    assert refused["Allow"] == "GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE"


def test_too_little_memory_to_begin_with(root: Path, script: Path) -> None:
    for memory in ("1k", "10k", "20k"):
        flags = [
            "--root",
            root,
            "--listen",
            "8080",
            "--lua-script",
            script,
            "--lua-memory",
            memory,
            "--check-config",
            *AS_WHO,
        ]
        done = subprocess.run([BINARY, *flags], capture_output=True, text=True, check=False)
        assert (done.returncode, "memory" in done.stderr) == (1, True), (memory, done)


def test_no_files(server: Server) -> None:
    assert server.get("/lua/files").body == b"nilnilnilnil"


def test_loaded_once_or_every_time(root: Path, script: Path) -> None:
    with Server(root, "--lua-script", str(script)) as server:
        assert [server.get("/lua/count").body for _ in range(2)] == [b"1", b"2"]
    with Server(root, "--lua-script", str(script), "--lua-reload", "on") as reloading:
        assert [reloading.get("/lua/count").body for _ in range(2)] == [b"1", b"1"]


def test_a_script_that_does_not_load(root: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.lua"
    wrong.write_text("function handle(")
    flags = ["--root", str(root), "--listen", "127.0.0.1:8080", "--lua-script", str(wrong), *AS_WHO]
    done = subprocess.run([BINARY, *flags], capture_output=True, text=True, check=False, timeout=10)
    assert done.returncode == 1 and "wrong.lua:1:" in done.stderr
