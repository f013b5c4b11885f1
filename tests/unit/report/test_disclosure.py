"""disclosure.html: what was disclosed, what was not, and by whom."""

import json
from pathlib import Path

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.report.disclosure import disclosure_of, render

BLOCK = {
    "operator": "Jane Doe",
    "machines": {
        "metal": {
            "switch": {"text": "Arista <7060>", "source": "inventory"},
            "cpu": {"text": "EPYC", "source": "machine"},
        },
        "guest": {"cpu": {"text": "EPYC", "source": "machine"}},
    },
    "virtual": ["guest"],
}  # fmt: skip


def with_block(folder: Path) -> Path:
    path = make_run(folder, Truth(blocks=2))
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps(manifest | {"disclosure": BLOCK}))
    return path


def test_every_item_is_disclosed_or_marked_undisclosed(tmp_path: Path) -> None:
    page = render(load_run(with_block(tmp_path)))
    assert "Jane Doe" in page
    assert "Arista &lt;7060&gt; <small>(stated in the inventory)</small>" in page
    assert page.count('class="none">not disclosed') == 12 + 8
    assert page.count('class="host">as its host') == 5
    assert "20 items not disclosed." in page


def test_an_older_run_discloses_the_facts_that_it_has(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, Truth(blocks=2)))
    assert run.manifest.disclosure is None
    metal = next(name for name, facts in run.hosts.items() if facts.environment == "metal")
    assert disclosure_of(run).machines[metal]["kernel"].text == run.hosts[metal].kernel
    assert "not disclosed" in render(run)
