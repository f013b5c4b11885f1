import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from vmtoll.builds import image, machine_disk, tools
from vmtoll.lab import embedded, topology
from vmtoll.model.release import RELEASES


@pytest.mark.parametrize("name", ["single", "machine-pairs"])
@pytest.mark.parametrize("slow", ["tools", "image"])
def test_each_builder_finds_what_it_needs_whichever_is_slower(
    monkeypatch: pytest.MonkeyPatch, slow: str, name: str
) -> None:
    made: list[str] = []

    def make(what: str) -> None:
        time.sleep(0.3 if what == slow else 0)
        made.append(what)

    def built_image(*_: object) -> Path:
        make("image")
        return Path("image")

    def disk(folder: Path, _: object) -> Path:
        assert {"tools", "image"} <= set(made)
        make("disk")
        return folder / "machine.qcow2"

    monkeypatch.setattr(tools, "build", lambda _: make("tools"))
    monkeypatch.setattr(image, "ensure", built_image)
    monkeypatch.setattr(machine_disk, "ensure", disk)
    monkeypatch.setattr(embedded, "lock", lambda _: nullcontext())
    monkeypatch.setattr(embedded, "_build", lambda *_: make("lab"))
    monkeypatch.setattr(embedded, "_copy_missing_tools", lambda *_: make("copies"))
    shape = topology.shape(name)
    embedded.up("unshaped", lambda _: None, shape, RELEASES[0])
    assert made[-1] == "copies"
    assert made.index("image") < made.index("lab")
    assert made.index("tools") < made.index("copies")
    assert ("disk" in made) == bool(shape.inventory)
