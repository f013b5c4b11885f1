"""The glossary of the pages: for each term its heading and its meaning."""

from collections.abc import Mapping

# `{margin}`: the margin of the run, or on a page of several runs the usual one.
GLOSSARY: Mapping[str, tuple[str, str]] = {
    "block": (
        "Block",
        "One repetition of all scenarios, in random order. vmtoll compares metal and guest within a block, so slow "
        "drift of the machine cancels out. The sample is the trial in its block, not the request.",
    ),
    "overhead": (
        "Overhead, cost ratio",
        "Overhead is the share of metal's throughput that the guest loses: 1 − exp(mean log(guest ÷ metal)) over "
        "blocks. A cost ratio is guest ÷ metal, of latency or CPU.",
    ),
    "interval": (
        "95% interval",
        "Square brackets hold it, by paired t over blocks. The details add Hodges–Lehmann with the exact "
        "signed-rank interval, which assumes no normal distribution. A note says where the two disagree. The "
        "evidence below the headline has the interval of the level that Holm's correction left.",
    ),
    "equivalent": (
        "Equivalent within {margin}",
        "The whole interval lies within ±{margin}, by paired t and by signed rank.",
    ),
    "undecided": (
        "Undecided",
        "The interval leaves open whether guest and metal differ: these blocks cannot distinguish them. The "
        "verdict names the smallest difference that they show with 80% power. Fewer than six blocks are never "
        "enough.",
    ),
    "noise-floor": (
        "Noise floor, A/A arm",
        "The A/A arm, or control, is an environment that each block measures twice, usually metal. The two should "
        "not differ. The farther end of the interval of their difference is the noise floor: this lab cannot "
        "distinguish smaller differences from none. Both measurements count as the environment's figure. Where the "
        "control differs from itself, a difference no larger than its own is undecided.",
    ),
    "bound": (
        "At least, at most",
        "“At least”: the faster side is client-limited or link-limited, so its true throughput is higher and the "
        "true difference larger. “At most”: the slower side is. A p99 is “at least” where the client sent late: "
        "its delay is subtracted from the slower side. Where the main tool limits itself, the verdict takes the "
        "cross-check, a cheaper load generator on the same URLs.",
    ),
    "p99": (
        "p99",
        "The time within which 99% of the requests are answered; one in a hundred takes longer. The tail is what "
        "lies beyond.",
    ),
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
    "goodput": (
        "Goodput",
        "Requests answered correctly within the deadline, per second of intended sending.",
    ),
    "holm": (
        "p, Holm",
        "The p-value after Holm's weighted correction for all comparisons on this page. Half of the 5% is for "
        "throughput and the open loop's p99, half for all other figures. A difference counts when it stays below "
        "5%, so at most one page in twenty has a wrong “faster” or “slower”.",
    ),
    "boot": (
        "One host, one boot",
        "Blocks of one boot share what that boot drew, such as the placement of pages. The intervals do not cover "
        "other boots or other hosts; several boots (boots) and campaigns measure those.",
    ),
    "limited": (
        "Limited by",
        "What kept a side from answering more requests: client CPU, link, server CPU, the guest's host CPU, "
        "connections, or nothing. Connections: no resource was full, so the users or the listen queue set the "
        "rate. Nothing: an open loop reached its rate.",
    ),
    "availability": (
        "Availability",
        "The share of requests answered with success. Wilson's interval takes requests as independent. Failures "
        "come in clusters, so it is the narrowest possible.",
    ),
    "suspect": (
        "Suspect trial",
        "It has a finding that may distort it. It counts and is named. Where too many trials are distorted, or "
        "more on one side, the verdict is invalid.",
    ),
    "invalid": (
        "Invalid",
        "An invalid trial is excluded and counted per side. Of several attempts the last one counts; a side that "
        "needed them more often is never called equivalent. An invalid verdict has a figure that shows nothing; "
        "the reason is given with it.",
    ),
    "test-bed": (
        "Test bed",
        "Machines that measure on their own: a client, metal, and a KVM host with its guests. In a campaign the "
        "test bed is the sample.",
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
    "accelerator": (
        "Accelerator, hardware",
        "The accelerator ran the guest's code: KVM or emulation (TCG). The hardware is below its host: native, "
        "nested (another hypervisor) or emulated.",
    ),
    "disclosure": (
        "Disclosure",
        "What a run was measured on: hardware, firmware, kernel, hypervisor and settings of each machine. The "
        "machine reports most items, the inventory states the others.",
    ),
    "arm": (
        "Metal, guest, host",
        "Metal is the machine without virtualization, guest the virtual machine, host the machine that runs the "
        "guest. All run the same server on the same site.",
    ),
}
USUAL_MARGIN = 0.02
_REPORT_ALONE = ("overhead", "boot", "limited", "availability")
_SHARED = (
    "block", "interval", "equivalent", "undecided", "noise-floor", "bound", "p99", "closed-loop", "open-loop",
    "goodput", "holm", "suspect", "invalid",
)  # fmt: skip
# The terms of each page.
REPORT_TERMS = tuple(name for name in GLOSSARY if name in (*_SHARED, *_REPORT_ALONE))
CAMPAIGN_TERMS = ("test-bed", "between", "further", *_SHARED, "steal", "accelerator")
REPLICATION_TERMS = (
    "confirmed", "refuted", "inconclusive", "block", "interval", "bound", "p99", "closed-loop", "open-loop", "suspect",
    "invalid", "accelerator",
)  # fmt: skip
DISCLOSURE_TERMS = ("disclosure", "arm", "accelerator")
EXPLORER_TERMS = (*_SHARED, "accelerator", "disclosure")
