"""Every kind of page that a person sees, made of synthetic runs. Nothing in them was ever measured."""

import subprocess
from pathlib import Path

from tests.support.explorer_runs import add_run
from tests.support.published_run import claim, make_published
from tests.support.synthetic_run import (
    Row,
    Truth,
    closed_load,
    failed_trial,
    make_run,
    rate_load,
    role_findings,
    with_findings,
)
from tests.support.tuning_run import TuningTruth, make_tuning
from vmtoll.analysis.run import load_run
from vmtoll.analysis.verdict import analyse
from vmtoll.campaign.effects import campaign_figures
from vmtoll.campaign.page import write_page as write_campaign
from vmtoll.campaign.store import partition
from vmtoll.model.finding import Code, Role
from vmtoll.model.trial import Accelerator
from vmtoll.paths import PROJECT
from vmtoll.report.disclosure import write_disclosure
from vmtoll.report.explorer import write_site
from vmtoll.report.html import write_report
from vmtoll.report.notebook import execute
from vmtoll.report.replication import write_page as write_replication

CALM, TROUBLED = "web/20260101T000000Z-aaaa", "web/20260102T000000Z-bbbb"
TESTBEDS = {"rack-1": 0.90, "rack-2": 0.88, "rack-3": 0.93, "rack-4": 0.86, "rack-5": 0.91}


def write_explorer(folder: Path) -> list[str]:
    """Write the explorer with two runs, their reports and disclosures; return the addresses of its pages and views."""
    results = folder / "results"
    undeclared = [{"fact": "sysctls: net.core.somaxconn", "values": {"metal": "4096", "kvm-default": "128"}}]
    loads = (closed_load(), rate_load(1000))
    calm = Truth({"nginx": 0.9, "lighttz": 0.5}, histograms=True, loads=loads, latency_ratio=2.0)
    troubled = Truth(
        {"nginx": 0.05, "lighttz": 0.04}, accelerator=Accelerator.TCG, status="running", undeclared=undeclared,
        change=_troubled,
    )  # fmt: skip
    for name, truth in ((CALM, calm), (TROUBLED, troubled)):
        run = load_run(add_run(results, truth, *name.split("/")))
        write_report(run, analyse(run))
        write_disclosure(run, run.path)
    site = write_site(results, folder / "site")
    runs = site.parent.as_uri() + "/runs"
    views = (
        "", "#view=scenarios", f"#view=compare&a={CALM}&b={TROUBLED}", f"#view=baseline&a={CALM}", "#view=history",
    )  # fmt: skip
    return [
        f"{runs}/{CALM}/report.html", f"{runs}/{TROUBLED}/report.html", f"{runs}/{CALM}/disclosure.html",
        *(site.as_uri() + view for view in views),
    ]  # fmt: skip


def _troubled(row: Row) -> list[Row]:
    """Client-limited trials on metal and an invalid trial, so that every kind of table and note shows."""
    if row["arm"].environment == "metal":
        return [with_findings(row, *role_findings(Code.CLIENT_SATURATED, Role.PRIMARY))]
    return [failed_trial(row, Code.WRONG_BODY, "first a.html")] if row["block"] == 1 else [row]


def write_other_pages(folder: Path) -> list[str]:
    """Write pages on tuning steps, a campaign, published claims, and a notebook; return their addresses."""
    steps = load_run(make_tuning(folder / "tuning", TuningTruth(guests=("kvm-2009", "kvm-default"), blocks=6)))
    for bed, ratio in TESTBEDS.items():
        truth = Truth(
            {"nginx": ratio}, loads=(closed_load(), rate_load(1000)), histograms=True, blocks=3, seed=sum(map(ord, bed))
        )
        partition(make_run(folder / bed, truth), folder / "dataset", "spring", bed)
    claims = [claim(published=[3000.0, 1000.0]), claim("at least 5,000", at_least=5000.0, published=[6000.0])]
    claims.append(claim("boa is as fast", over={"server": "boa"}, published=[2.0, 1.0], within_pct=10.0))
    claimed = make_published(folder / "claims", Truth({"nginx": 0.5, "lighttpd": 0.5}, aa=False), claims)
    pages = [
        write_report(steps, analyse(steps)),
        write_report(claimed, analyse(claimed)),
        write_campaign(campaign_figures(str(folder / "dataset")), folder / "campaign.html"),
        write_replication([(claimed, analyse(claimed))], folder / "replication.html"),
        execute("metal_vs_kvm", steps.path),
    ]
    return [page.as_uri() for page in pages]


def write_documents() -> list[str]:
    """Write the project's pages as a site; return the addresses of pages of each kind."""
    subprocess.run([PROJECT / "scripts" / "docs"], check=True)
    site = PROJECT / "build" / "site"
    names = ("index", "docs/tutorials/first-report", "docs/reference/columns", "docs/architecture")
    return [(site / f"{name}.html").as_uri() for name in names]
