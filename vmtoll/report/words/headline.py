"""The headline of a run: its verdicts in one sentence, throughput first, then the tail where the run has one."""

from dataclasses import dataclass

from vmtoll.model.finding import Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT
from vmtoll.model.trial import Accelerator, Scenario
from vmtoll.model.verdict import Comparison, Kind, RunAnalysis, Verdict
from vmtoll.report.words.terms import labels_of, percent, plural
from vmtoll.report.words.verdicts import KINDS, amount_text, effect_text, form_of, verdict_text

SENTENCE_LIMIT = 300
_KVM = {Hardware.EMULATED: "KVM on emulated hardware, not what KVM costs: ", Hardware.NESTED: "Nested KVM: "}
DECIDED = (Kind.SLOWER, Kind.FASTER)


def sentence(analysis: RunAnalysis) -> str:
    """One sentence of at most 300 characters: every server by name where that fits, else counts of each kind."""
    start = "Emulation (TCG), not KVM: " if analysis.emulated else ""
    start += "".join(text for kind, text in _KVM.items() if kind in analysis.kvm_hardware)
    trials, valid = sum(analysis.counts.values()), analysis.counts.get(Validity.VALID, 0)
    if 2 * valid < trials:
        start += f"{f'only {valid}' if valid else 'none'} of {trials} trials valid, so doubt every figure: "
    if not analysis.complete:
        done = f" ({sum(analysis.counts.values())} of {analysis.planned} trials)" if analysis.planned else ""
        start += f"incomplete run{done}: "
    whole = ""
    for body in _bodies(analysis):
        whole = f"{start}{body} ({', '.join(_basis(analysis))})."
        if len(whole) <= SENTENCE_LIMIT:
            break
    whole = whole[0].upper() + whole[1:]
    return whole if len(whole) <= SENTENCE_LIMIT else whole[: SENTENCE_LIMIT - 1] + "…"


def cost_sentence(analysis: RunAnalysis) -> str:
    """The second headline: what a request costs the host in CPU, with QEMU, vhost and the guest's kernel; where no host
    was seen, what it costs the guest by its own account. Empty without a figure of either.
    """
    for metric in (HOST_CPU, CPU):
        part = _Part.of(analysis, metric.name)
        if any(verdict.estimate for _, verdict in part.verdicts):
            bodies = (part.names(), part.counts())
            text = next((body for body in bodies if len(body) < SENTENCE_LIMIT), bodies[-1])
            return f"CPU per request: {text}."
    return ""


def _bodies(analysis: RunAnalysis) -> list[str]:
    """The same at length, shorter, shortest."""
    throughput, tail = (_Part.of(analysis, metric.name) for metric in (THROUGHPUT, TAIL))
    if not analysis.comparisons and analysis.searches:
        return ["a search for the highest rate that each side carries: see the capacity of one"]
    if not throughput.verdicts and not tail.verdicts:
        return ["there is no guest to compare with metal"]
    if not tail.verdicts:
        return [throughput.names(), throughput.counts()]
    name = "under open load: "
    if not throughput.verdicts:
        return [name + tail.names(), name + tail.counts()]
    long, short = throughput.names(), throughput.counts()
    pairs = ((long, tail.names()), (long, tail.counts()), (short, tail.counts()))
    return [f"{first}; {name}{second}" for first, second in pairs]


def _basis(analysis: RunAnalysis) -> list[str]:
    floor, invalid = analysis.noise_floor, analysis.counts.get(Validity.INVALID, 0)
    parts = [
        plural(analysis.blocks, "block"),
        "one host",
        f"{analysis.boots} boots" if analysis.boots > 1 else "one boot",
    ]
    parts.append("noise floor unknown" if floor is None else f"noise floor {percent(floor)}")
    if suspect := analysis.counts.get(Validity.SUSPECT, 0):
        parts.append(f"{suspect} of {sum(analysis.counts.values())} trials suspect")
    if invalid:
        parts.append(f"{plural(invalid, 'invalid trial')} excluded")
    if count := analysis.undeclared_differences:
        parts.append(plural(count, "undeclared difference"))
    return parts


@dataclass(frozen=True)
class _Part:
    """The verdicts of one metric, by the names that the sentence gives to their comparisons."""

    verdicts: list[tuple[str, Verdict]]
    guest: str

    @classmethod
    def of(cls, analysis: RunAnalysis, metric: str) -> "_Part":
        """The verdicts of the comparisons under whose load the metric says something."""
        labels = labels_of(dict.fromkeys(comparison.scenario for comparison in analysis.comparisons))
        several = len({comparison.arm for comparison in analysis.comparisons}) > 1
        members = [c for c in analysis.comparisons if metric in c.verdicts and c.verdicts[metric].applies]
        emulated = any(comparison.accelerator is Accelerator.TCG for comparison in members)
        return cls(
            [(_name(comparison, labels, several=several), comparison.verdicts[metric]) for comparison in members],
            "the emulated guest" if emulated else "the guest",
        )

    def names(self) -> str:
        """Every server by name."""
        parts = [
            effect_text([v for _, v in members], self._amounts(members), self.guest)
            for kind in DECIDED
            if (members := self._of(kind))
        ]
        for kind in (Kind.EQUIVALENT, Kind.UNDECIDED, Kind.INVALID):
            if members := self._of(kind):
                texts = {verdict_text(verdict, self.guest) for _, verdict in members}
                named = ", ".join(name for name, _ in members)
                parts.append(f"{named}: {texts.pop() if len(texts) == 1 else KINDS[kind]}")
        return "; ".join(parts)

    def counts(self) -> str:
        """For many servers: how many of each kind, with the range of what is decided."""
        parts = []
        for kind in KINDS:
            if members := self._of(kind):
                extent = f" ({self._range(members)})" if kind in DECIDED else ""
                parts.append(f"{self.guest + ' is ' if kind in DECIDED else ''}{KINDS[kind]} in {len(members)}{extent}")
        return f"of {plural(len(self.verdicts), 'comparison')}, " + ", ".join(parts)

    def _of(self, kind: Kind) -> list[tuple[str, Verdict]]:
        """Those of a kind, by the size of the effect where it is decided."""
        members = [(name, verdict) for name, verdict in self.verdicts if verdict.kind is kind]
        return sorted(members, key=_size) if kind in DECIDED else members

    def _amounts(self, members: list[tuple[str, Verdict]]) -> str:
        """`8.1% (nginx) and 9% (lighttpd)`, or the range over many servers."""
        form = form_of([verdict for _, verdict in members])
        sizes = [f"{amount_text(verdict, form, interval=True)} ({name})" for name, verdict in members]
        if len(sizes) <= 2:
            return " and ".join(sizes)
        return f"{sizes[0]} to {sizes[-1]}"

    def _range(self, members: list[tuple[str, Verdict]]) -> str:
        form = form_of([verdict for _, verdict in members])
        sizes = [amount_text(verdict, form, interval=True) for _, verdict in members]
        text = {"less": "less", "more": "more", "times": ""}[form]
        return f"{sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} {text}".strip()


def _name(comparison: Comparison, labels: dict[Scenario, str], *, several: bool) -> str:
    label = labels[comparison.scenario]
    return f"{label} on {comparison.arm}" if several else label


def _size(member: tuple[str, Verdict]) -> float:
    """How far a ratio lies from one, alike in both directions."""
    estimate = member[1].estimate
    return max(estimate.ratio, 1 / estimate.ratio) if estimate else 0.0
