"""An example or two of each verb, shown below its help."""

from collections.abc import Mapping, Sequence

EXAMPLES: Mapping[str, Sequence[str]] = {
    "demo": ["vmtoll demo", "vmtoll demo --suite bookworm"],
    "run": ["vmtoll run tails", "vmtoll run tails --inventory hosts.yml --until 2,60"],
    "list": ["vmtoll list", "vmtoll list --json"],
    "report": ["vmtoll report results/latest", "vmtoll report results/latest --json"],
    "notebook": ["vmtoll notebook capacity results/latest --set RATE_RPS=500"],
    "site": ["vmtoll site --output public --from bundles"],
    "replication": ["vmtoll replication", "vmtoll replication results/php-2006/* --output page.html"],
    "capacity": ["vmtoll capacity results/latest --rate 2000 --p99-ms 50"],
    "publish": ["vmtoll publish results/latest --output bundle --author 'Ada Example'"],
    "compare": ["vmtoll compare bundle results/latest", "vmtoll compare bundle results/latest --json"],
    "replay": ["vmtoll replay bundle --inventory hosts.yml"],
    "preflight": ["vmtoll preflight --inventory hosts.yml"],
    "provision": ["vmtoll provision --inventory hosts.yml --check"],
    "diagnose": ["vmtoll diagnose web1", "vmtoll diagnose web1 --inventory hosts.yml --on kvm1 --json"],
    "tune": ["vmtoll tune --inventory hosts.yml --check"],
    "untune": ["vmtoll untune --inventory hosts.yml"],
    "campaign": ["vmtoll campaign demo tails --inventory hosts.yml --dry-run"],
    "campaign-report": ["vmtoll campaign-report results/campaigns/demo_tails/data"],
    "partition": ["vmtoll partition results/latest --output data --campaign spring --testbed rack1"],
    "lab up": ["vmtoll lab up --link 1gbit", "vmtoll lab up --guests kvm-2009,kvm-default"],
    "lab image": ["vmtoll lab image --suite bookworm"],
    "lab down": ["vmtoll lab down"],
    "lab status": ["vmtoll lab status", "vmtoll lab status --json"],
    "workload from-log": ["vmtoll workload from-log access.log.gz --output workloads --name shop"],
}


def epilog(verb: str) -> str:
    """The examples as a paragraph and a code block of Markdown, which the terminal shows as lines."""
    examples = EXAMPLES[verb]
    return "\n".join([f"Example{'s' * (len(examples) > 1)}:", "", *(f"    {example}" for example in examples)])
