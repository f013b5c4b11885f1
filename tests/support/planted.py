"""lighttz with a known cost in each response."""

import shutil
import subprocess
from pathlib import Path

from vmtoll.paths import SERVER_BUILDS

_SEND = "    return sent(c, send(c->io.fd, p, n, flags));\n"
_SPIN = '    __asm__ volatile("mov ${turns}, %%ecx\\n1: dec %%ecx\\n\\tjnz 1b\\n\\tnop" ::: "ecx", "cc");\n'
_OUTB = '    __asm__ volatile("outb %%al, $0x80" : : "a"(0));\n'
# Before the server gives up what root may do; its processes inherit it.
_ALLOW = "#include <sys/io.h>\n__attribute__((constructor)) static void allow(void) { (void)!iopl(3); }\n"


def server(folder: Path, instructions: int = 0, *, outb: bool = False) -> bytes:
    """Compile lighttz in this folder with so many instructions more (an even number), and one `outb`, in each response
    of a whole file in memory.
    """
    source = folder / "lighttz"
    shutil.copytree(SERVER_BUILDS / "lighttz", source, ignore=shutil.ignore_patterns("build"))
    output = source / "src/output.c"
    text = output.read_text()
    assert text.count(_SEND) == 1
    # mov and nop, and two for each turn.
    planted = _SPIN.format(turns=instructions // 2 - 1) if instructions else ""
    text = text.replace(_SEND, planted + (_OUTB if outb else "") + _SEND)
    output.write_text(text + _ALLOW if outb else text)
    subprocess.run(["make", "-s", "-C", source, "build/lighttz"], check=True)
    return (source / "build/lighttz").read_bytes()
