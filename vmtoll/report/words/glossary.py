"""The glossary of reports and documents: for each term its heading and its meaning."""

from collections.abc import Mapping

# `{margin}`: the margin of the run, or the default one in a report on several runs.
GLOSSARY: Mapping[str, tuple[str, str]] = {
    "sut": ("SUT", "System under test: the machine or guest, with the server on it, that a run measures."),
    "client": ("Client", "The machine that sends the load."),
    "metal": (
        "Metal",
        "The machine without virtualization. It runs the same server on the same site as the guest.",
    ),
    "guest": ("Guest", "A virtual machine. By default a run compares it with metal."),
    "host": ("Host", "The machine that runs the guest."),
    "domain": ("Domain", "libvirt's name for a guest."),
    "environment": (
        "Environment",
        "What the server runs on: metal, a container, a guest profile such as kvm-default, or one of these with a "
        "change or an operation applied.",
    ),
    "arm": ("Arm", "An environment and its replicate: metal#2 is metal a second time."),
    "baseline": (
        "Baseline",
        "The environment that a run compares every other one with: metal, unless the experiment names another one "
        "(baseline) or has no metal. A ratio is other ÷ baseline.",
    ),
    "server": ("Server", "The program that answers the requests, such as nginx."),
    "tool": ("Tool", "The load generator: the program that sends the requests, such as siege or h2load."),
    "cross-check": ("Cross-check", "The second, cheaper or independent load generator on the same URLs."),
    "workload": ("Workload", "What the client sends, and how."),
    "load": (
        "Load",
        "One load of a workload: its kind (closed, rate or share), its value, its guests and its neighbour load.",
    ),
    "neighbour-load": ("Neighbour load", "The load on a sibling guest of the one under measurement."),
    "experiment": ("Experiment", "A question, and the matrix of servers, environments and loads that answers it."),
    "scenario": ("Scenario", "One server under one load."),
    "run": ("Run", "One execution of an experiment."),
    "trial": ("Trial", "One repetition of a scenario in an environment."),
    "attempt": ("Attempt", "One try at a trial."),
    "measurement": (
        "Measurement",
        "What one tool measured in a trial. Its role is primary or crosscheck.",
    ),
    "block": (
        "Block",
        "One repetition of all scenarios, in random order. The environments of a scenario follow each other, in "
        "reverse order in every other block. vmtoll compares environments within a block, so slow drift of the "
        "machine cancels out. The sample is the trial in its block, not the request.",
    ),
    "boot": (
        "Boot",
        "The blocks of a run between two boots of its machines under test, counted from 1. Blocks of one boot share "
        "what that boot drew, such as the placement of pages. The intervals do not cover other boots or other hosts; "
        "several boots (boots) and campaigns measure those.",
    ),
    "verdict": (
        "Verdict",
        "The result of one comparison, and of a run. A comparison is faster, slower, equal, undecided or not judged.",
    ),
    "overhead": (
        "Overhead",
        "The share of the baseline's throughput that another environment loses: 1 − exp(mean log(other ÷ baseline)) "
        "over blocks.",
    ),
    "cost-ratio": ("Cost ratio", "Other ÷ baseline, of latency or CPU."),
    "interval": (
        "Interval",
        "The range in parentheses covers chance and everything that the findings allow, at the level that Holm's "
        "correction left. If it excludes 1×, the verdict is faster or slower. Successive blocks may resemble each "
        "other; the interval allows for that.",
    ),
    "wide": (
        "Wide interval",
        "The ends of the interval are a hundred times apart or more. The run shows which side is better, not by how "
        "much.",
    ),
    "margin": (
        "Margin",
        "A difference within the margin counts as equal: ±2%, unless the experiment sets another one.",
    ),
    "equivalent": (
        "Equal, equivalent",
        "The whole interval lies within ±{margin}.",
    ),
    "undecided": (
        "Undecided",
        "The interval includes 1×, so these blocks neither show a difference nor equality. The verdict names the "
        "reason: noise, findings, the client or the link, too few blocks; and the smallest difference that these "
        "blocks show with 80% power. A difference needs three blocks, equality six.",
    ),
    "not-judged": (
        "Not judged",
        "A side gave no value, or the two sides ran different things: another binary, content or kernel parameter.",
    ),
    "aa-arm": (
        "A/A control",
        "An environment that each block measures twice, usually the baseline. The two should not differ, so what they "
        "differ by is noise. Both measurements count for the environment. Where the control differs from "
        "itself for sure, every interval of that metric is wider by as much.",
    ),
    "noise-floor": (
        "A/A difference",
        "The same environment is measured twice in each block. The A/A difference is the largest ratio of the two, "
        "over all blocks, for one metric: the noise of this run. Where every block shows a ratio of at least 2×, and "
        "of the square of this one, the blocks need no interval to show it.",
    ),
    "every-block": (
        "Each block",
        "Every block shows the difference, whatever the findings allow, and by far more than two trials of one machine "
        "differ. There are too few blocks for an interval of its size: the text has the range of the blocks.",
    ),
    "client-limited": ("Client-limited", "The client, not the server, was the bottleneck."),
    "link-limited": ("Link-limited", "The link, not the server, was the bottleneck."),
    "bound": (
        "Bound: at least, at most",
        "The far end of the interval is open: the client or the link limited the faster side, or trials were lost. The "
        "size that is claimed is the near end. Two conventions: an open end is capped at twice the largest value seen "
        "for this server and load, and a lost trial counts as twice as bad as the worst of its side.",
    ),
    "p99": (
        "p99",
        "The time within which 99% of the requests are answered; one in a hundred takes longer. The tail is what "
        "lies beyond.",
    ),
    "service-time": ("Service time", "The time from the actual send of a request to its answer."),
    "response-time": ("Response time", "The time from the intended send of a request to its answer."),
    "closed-loop": (
        "Closed loop",
        "A fixed number of users, each of whom waits for the answer before sending the next request. The server "
        "sets the rate, which is its throughput. A stall delays few requests, so the percentiles are service "
        "times. They predict nothing about an open stream of visitors.",
    ),
    "open-loop": (
        "Open loop, open load",
        "The client sends requests at a set rate, whatever the server does, and times them from the moment of the "
        "intended send. Only these percentiles are tails. The rate is given, so there is no verdict on throughput.",
    ),
    "offered-load": ("Offered load", "The requests that the client sends, per second."),
    "throughput": (
        "Throughput",
        "Answered requests per second; in a closed loop, of the time while all users are at work.",
    ),
    "goodput": (
        "Goodput",
        "Requests answered correctly within the deadline, per second of intended sending.",
    ),
    "rate-sweep": ("Rate sweep", "Rising offered rates, one step after the other."),
    "tuning-steps": ("Tuning steps", "Guest profiles from untuned to tuned, one step after the other."),
    "step": ("Step", "One rate of a rate sweep, or one profile of the tuning steps."),
    "holm": (
        "p, Holm",
        "The p-value after Holm's weighted correction for all comparisons of the report. Half of the 5% is for "
        "throughput and the open loop's p99, half for all other metrics. A difference counts when it stays below "
        "5%; the aim is that at most one report in twenty has a wrong “faster” or “slower”.",
    ),
    "limited": (
        "Limited by",
        "What kept a side from answering more requests: client CPU, link, server CPU, the guest's host CPU, a CPU that "
        "ran something else, connections, or nothing. Connections: no resource was full, so the users or the listen "
        "queue set the rate. Nothing: an open loop reached its rate.",
    ),
    "availability": (
        "Availability",
        "The share of requests answered with success. Wilson's interval takes requests as independent. Failures "
        "come in clusters, so it is the narrowest possible.",
    ),
    "gate": ("Check", "What vmtoll looks at after a trial. A check that fires adds a finding to the trial."),
    "finding": (
        "Finding",
        "Why a trial is suspect or invalid: a code, the machine, the process, a value and its limit.",
    ),
    "validity": ("Validity", "Whether a trial may be used: it is valid, suspect or invalid."),
    "suspect": (
        "Suspect trial",
        "It has a finding. It counts, with all the values that the finding allows it to have had.",
    ),
    "invalid": (
        "Invalid trial",
        "It gave no value that may be used. Where its own side failed it counts as lost: twice as bad as the worst of "
        "its side, and only against that side. A second attempt counts with the lost one beside it.",
    ),
    "background-cpu": ("Background CPU", "CPU used by processes outside the measurement."),
    "injected-fault": (
        "Injected fault",
        "A fault that a test causes on purpose, in the lab or in synthetic readings, to prove that its check fires.",
    ),
    "synthetic-readings": (
        "Synthetic readings",
        "Readings that a test makes, with values that it knows, instead of readings of a machine.",
    ),
    "test-bed": (
        "Test bed",
        "Machines that measure on their own: a client, metal, and a KVM host with its guests. In a campaign the "
        "test bed is the sample. In the inventory it is a child group of the group cells.",
    ),
    "between": (
        "Between test beds",
        "The standard deviation of the ratio between hosts, without what the noise of their blocks explains.",
    ),
    "further": (
        "One further test bed",
        "The 95% prediction interval for another test bed of this kind, with as many blocks, if test beds vary "
        "like a normal distribution.",
    ),
    "confirmed": (
        "Confirmed",
        "The 95% interval of the ratio, or of the level, lies wholly where the published claim puts it.",
    ),
    "refuted": (
        "Refuted",
        "The 95% interval lies wholly elsewhere, or the two sides are equal within {margin}.",
    ),
    "inconclusive": (
        "Inconclusive here",
        "This run can neither confirm nor refute the published claim; the row gives the reason.",
    ),
    "steal": (
        "Steal",
        "Time in which the hypervisor ran something else while a CPU wanted to run.",
    ),
    "cpu-ready": (
        "CPU ready",
        "Time in which a thread was able to run and waited, because its CPU ran something else. What a virtual CPU "
        "waits on its host is steal inside the guest.",
    ),
    "exit": ("Exit", "A guest's CPU left guest mode because the host had to do something."),
    "vhost": ("vhost", "The host's kernel thread that carries a guest's packets."),
    "accelerator": ("Accelerator", "What ran the guest's code: KVM or emulation (TCG)."),
    "hardware": (
        "Hardware",
        "What the guest's host runs on: native, nested (another hypervisor) or emulated.",
    ),
    "disclosure": (
        "Disclosure",
        "What a run was measured on: hardware, firmware, kernel, hypervisor and settings of each machine. The "
        "machine reports most items, the inventory states the others.",
    ),
}
_REPORT_ALONE = ("overhead", "cost-ratio", "boot", "limited", "availability", "cpu-ready")
_SHARED = (
    "block", "interval", "wide", "equivalent", "undecided", "not-judged", "aa-arm", "noise-floor", "every-block",
    "bound", "p99", "closed-loop", "open-loop", "goodput", "holm", "suspect", "invalid",
)  # fmt: skip
# The terms of each report.
REPORT_TERMS = tuple(name for name in GLOSSARY if name in (*_SHARED, *_REPORT_ALONE))
CAMPAIGN_TERMS = ("test-bed", "between", "further", *_SHARED, "steal", "accelerator", "hardware")
REPLICATION_TERMS = (
    "confirmed", "refuted", "inconclusive", "block", "interval", "bound", "p99", "closed-loop", "open-loop", "suspect",
    "invalid", "accelerator", "hardware",
)  # fmt: skip
DISCLOSURE_TERMS = ("disclosure", "metal", "guest", "host", "accelerator", "hardware")
EXPLORER_TERMS = (*_SHARED, "accelerator", "hardware", "disclosure")
