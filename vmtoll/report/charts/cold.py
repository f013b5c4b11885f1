"""Cold caches: megabytes per second off the disk, and the time that one file takes."""

from vmtoll.analysis.run import Run
from vmtoll.model.verdict import RunAnalysis
from vmtoll.report.plot import Chart, lanes_of, strip_chart
from vmtoll.report.words import labels_of

ORDER = 37


def draw(run: Run, analysis: RunAnalysis) -> list[Chart]:
    """Two charts of the workloads with `cold: true`; none without such workloads."""
    cold = {name for name, workload in run.manifest.workloads.items() if getattr(workload, "cold", False)}
    labels = {scenario: label for scenario, label in labels_of(run.scenarios).items() if scenario.workload in cold}
    caption = (
        "No requested file was in a page cache of the machine under test or of its host; each file was requested once."
    )
    return [
        strip_chart(f"Cold caches: {title}", caption, lanes, unit)
        for title, column, unit in (
            ("megabytes per second", "throughput_mb_per_s", "MB/s"),
            ("half of the files take less", "service_time_p50_us", "µs"),
        )
        if (lanes := lanes_of(run, labels, run.arms, column))
    ]
