"""Spreadsheets as other programs see them: OASIS's validator, and LibreOffice."""

import csv
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.synthetic_run import Truth, make_run
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.report.ods import write_ods, write_sheets

pytestmark = pytest.mark.long
VALIDATOR = "org.odftoolkit:odfvalidator:0.12.0:jar:jar-with-dependencies"
# The validator's mistake: it says so of any package, with Java 17.
NO_ERROR = "There shall be no extra field for the 'mimetype' file"


@pytest.fixture
def spreadsheets(tmp_path: Path) -> list[Path]:
    """A run's, and one with all that a table may lack."""
    run = load_run(make_run(tmp_path, Truth({"nginx": 0.9})))
    awkward = tmp_path / "awkward.ods"
    row = ["a<b>&\"c'", "two\nlines", "  wide  gap", "bell\x07", None, 1, 0.1, float("nan"), True, -1e300]
    write_sheets(awkward, [('quo"ted & <odd>', [row, [], ["x"]]), ("empty", []), ("no cells", [[]])])
    return [write_ods(run, analyse(run)), awkward]


@pytest.mark.skipif(not shutil.which("mvn"), reason="needs the Debian package maven")
def test_they_are_valid_by_the_schema_of_oasis(tmp_path: Path, spreadsheets: list[Path]) -> None:
    copy = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={VALIDATOR}", f"-DoutputDirectory={tmp_path}"]
    subprocess.run(copy, check=True, timeout=600)
    (jar,) = tmp_path.glob("odfvalidator-*.jar")
    done = subprocess.run(["java", "-jar", jar, *spreadsheets], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    assert len([line for line in lines if "Info: Generator" in line]) == len(spreadsheets)
    assert [line for line in lines if "Error" in line and NO_ERROR not in line] == []


@pytest.mark.skipif(not shutil.which("soffice"), reason="needs the Debian package libreoffice-calc-nogui")
def test_libreoffice_reads_the_trials(tmp_path: Path, spreadsheets: list[Path]) -> None:
    """Its first sheet as CSV has the cells of trials.csv."""
    profile = f"-env:UserInstallation=file://{tmp_path}/profile"
    convert = ["soffice", profile, "--headless", "--convert-to", "csv", "--outdir"]
    subprocess.run([*convert, tmp_path / "out", spreadsheets[0]], check=True, capture_output=True, timeout=300)
    tables = [tmp_path / "out" / "trials.csv", spreadsheets[0].with_name("trials.csv")]
    read, written = ([*csv.reader(file.read_text(encoding="utf-8").splitlines())] for file in tables)
    assert read[0] == written[0]
    assert len(read) == len(written)
    columns = [written[0].index(name) for name in ("server", "started_at", "validity")]
    assert [[row[i] for i in columns] for row in read] == [[row[i] for i in columns] for row in written]
