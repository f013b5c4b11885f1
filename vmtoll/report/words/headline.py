"""The headline of a run: a short sentence per metric, what these rest on, and explanations of their words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmtoll.analysis.claims import count_outcomes
from vmtoll.model.finding import Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import percent, plural
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric
from vmtoll.model.trial import METAL, Accelerator, Arm, Scenario
from vmtoll.model.verdict import DECIDED, DIFFERENT, Comparison, Kind, RunAnalysis, SideCounts, Verdict
from vmtoll.report.words.claims import OUTCOMES
from vmtoll.report.words.terms import METRIC_LABELS, labels_of
from vmtoll.report.words.verdicts import (
    GUEST,
    KINDS,
    Sides,
    amount_text,
    because_text,
    bound_text,
    direction,
    effect_text,
    estimate_text,
    explained_text,
    near_end,
    shows_in_all_blocks,
    sides_of,
    verdict_text,
)

SENTENCE_LIMIT = 300
_ANSWER_LIMIT = 130  # of characters; a longer answer leaves the servers' names to its evidence
_MOST_NAMED = 3
_MIN_EXPLAINED = 0.05  # share of a difference that findings can explain; a smaller one is not mentioned
VAGUE = 100.0  # an interval over two decades shows the direction, not the size
_KVM = {Hardware.EMULATED: "KVM on emulated hardware, not what KVM costs: ", Hardware.NESTED: "Nested KVM: "}
_DIRECTIONS = (Kind.SLOWER, Kind.FASTER)
_OPEN = (Kind.UNDECIDED, Kind.NOT_JUDGED)
_NO_COMPARISON = "There is no second environment to compare."


@dataclass(frozen=True)
class Answer:
    """The answer of one metric, in a short sentence."""

    text: str
    short: str  # the same without names
    evidence: str = ""  # the intervals or reasons behind it
    # ever shorter evidence: the first intervals, then those of the first and the last server, with and without names
    sizes: tuple[str, ...] = ()
    metric: Metric | None = None
    kinds: frozenset[Kind] = frozenset()
    is_vague: bool = False  # the ends of a ratio's interval are a hundred times apart or more


@dataclass(frozen=True)
class Headline:
    """`answers`: the first is the page's heading; `warning`: that most trials have findings; `basis`: `6 blocks`, `one
    host`.
    """

    answers: tuple[Answer, ...]
    basis: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True)
class Explanation:
    """A word of the headline, explained in a sentence or two."""

    term: str  # its entry in the page's glossary
    word: str
    text: str


def headline(analysis: RunAnalysis) -> Headline:
    """The answers on throughput, tail and CPU per request that the run compares; `_rank` chooses the first."""
    by_metric = [
        metric_verdicts
        for metric in (THROUGHPUT, TAIL)
        if (metric_verdicts := _MetricVerdicts.of(analysis, metric)).members
    ]
    costs = (_MetricVerdicts.of(analysis, metric) for metric in (HOST_CPU, CPU))
    by_metric += [
        metric_verdicts
        for metric_verdicts in costs
        if any(member.verdict.estimate for member in metric_verdicts.members)
    ][:1]
    answers = [metric_verdicts.answer() for metric_verdicts in by_metric] if analysis.comparisons else []
    if answers:
        first = min(answers, key=_rank)
        answers = [first, *(answer for answer in answers if answer is not first)]
    if not answers:
        text = _without_comparison(analysis)
        answers = [Answer(text, text)]
    platform_prefix = "".join(text for kind, text in _KVM.items() if kind in analysis.kvm_hardware)
    if platform_prefix:
        text, short = answers[0].text, answers[0].short
        answers[0] = replace(answers[0], text=platform_prefix + _lower(text), short=platform_prefix + _lower(short))
    return Headline(tuple(answers), tuple(_basis(analysis)), _warning(analysis))


def sentence(analysis: RunAnalysis) -> str:
    """The headline as plain text of at most 300 characters: answers on throughput and tail, then their evidence.

    Others cite this sentence: to shorten it, vmtoll drops names, second answers and the basis before intervals.
    """
    result = headline(analysis)
    start = "Emulation (TCG), not KVM: " if analysis.emulated else ""
    if not analysis.complete:
        progress = f" ({sum(analysis.counts.values())} of {analysis.planned} trials)" if analysis.planned else ""
        start += f"incomplete run{progress}: "
    answers = [answer for answer in result.answers if answer.metric not in (HOST_CPU, CPU)] or [result.answers[0]]
    evidence = [answer.evidence for answer in answers if answer.evidence]
    basis = ", ".join(result.basis)
    long, short = ([answer.text for answer in answers], [answer.short for answer in answers])
    full_sentence = ""
    sizes = answers[0].sizes or next((answer.sizes for answer in answers if answer.sizes), ())
    for texts, evidence_parts in (
        (long, [*evidence, basis]), (short, [*evidence, basis]), *((short[:1], [size, basis]) for size in sizes[:1]),
        *((short[:1], [size]) for size in sizes), (short, [basis]), (short[:1], [basis]),
    ):  # fmt: skip
        if not evidence_parts:
            continue
        body = " ".join(texts)
        if start and not body.startswith(tuple(_KVM.values())):
            body = _lower(body)
        full_sentence = _capital(f"{start}{body} Evidence: {'; '.join(evidence_parts)}.")
        if len(full_sentence) <= SENTENCE_LIMIT:
            break
    return full_sentence if len(full_sentence) <= SENTENCE_LIMIT else full_sentence[: SENTENCE_LIMIT - 1] + "…"


def explanations(analysis: RunAnalysis) -> list[Explanation]:
    """Explanations of the words in this run's headline and verdicts that a reader may not know."""
    verdicts = [v for c in analysis.comparisons for v in c.verdicts.values() if v.applies]
    kinds = {v.kind for v in verdicts}
    rows = [
        (any(v.is_at_least for v in verdicts), Explanation(
            "bound", "At least, at most", "The client, the link or lost trials leave the size open. What is claimed"
            " holds for every value that they allow.")),
        (any(v.by_every_block for v in verdicts), Explanation(
            "every-block", "Each block", "Every block shows the difference, and by far more than two trials of one"
            " machine differ. There are too few blocks for an interval of its size.")),
        (any(answer.is_vague for answer in headline(analysis).answers), Explanation(
            "interval", "Wide interval", "The ends of the interval are a hundred times apart or more. The run shows"
            " which side is better, not by how much.")),
        (Kind.EQUIVALENT in kinds, Explanation(
            "equivalent", "Equal", f"The whole interval lies within ±{percent(analysis.margin)}.")),
        (Kind.UNDECIDED in kinds, Explanation(
            "undecided", "Undecided", "The interval includes 1×: these blocks show neither a difference nor"
            " equality.")),
        (Kind.NOT_JUDGED in kinds, Explanation(
            "not-judged", "Not judged", "A side gave no value, or the two sides ran different things.")),
        (analysis.noise_floor is not None, Explanation(
            "noise-floor", "A/A difference", "Each block measures one environment twice, the second time as “again"
            " (A/A)”. The largest ratio of the two in any block stands beside each metric: it is noise.")),
        (analysis.noise_floor is None and bool(analysis.comparisons), Explanation(
            "noise-floor", "A/A difference unknown", "The run has no A/A arm: it measures no environment twice.")),
    ]  # fmt: skip
    return [explanation for needed, explanation in rows if needed]


def _capital(text: str) -> str:
    """The text with a capital first letter, unless it starts with a name such as kvm-default."""
    return text if "-" in text.partition(" ")[0] else text[0].upper() + text[1:]


def _rank(answer: Answer) -> int:
    """The lowest rank is the heading: decided throughput or tail, then undecided answers, then decided CPU."""
    if answer.kinds & DECIDED:
        return 2 if answer.metric in (HOST_CPU, CPU) else 0
    return 1 if Kind.UNDECIDED in answer.kinds else 3


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _warning(analysis: RunAnalysis) -> str:
    trials, valid = sum(analysis.counts.values()), analysis.counts.get(Validity.VALID, 0)
    if 2 * valid >= trials:
        return ""
    return f"{trials - valid} of {trials} trials have a finding; each interval allows for what they may have changed"


def _without_comparison(analysis: RunAnalysis) -> str:
    if analysis.searches:
        return "A search found the highest rate that each side carries: see the capacity of one machine."
    if analysis.claims:
        outcomes = count_outcomes(analysis.claims)
        counts = ", ".join(f"{count} {OUTCOMES[outcome]}" for outcome, count in outcomes.items() if count)
        return f"Of {plural(len(analysis.claims), 'published claim')}: {counts}."
    return "This run measured nothing that compares its environments." if analysis.comparisons else _NO_COMPARISON


def _basis(analysis: RunAnalysis) -> list[str]:
    parts = [
        plural(analysis.blocks, "block"),
        "one host",
        _boots_text(analysis),
        *(["A/A difference unknown"] if analysis.noise_floor is None else []),
    ]
    if suspect := analysis.counts.get(Validity.SUSPECT, 0):
        parts.append(f"{suspect} of {sum(analysis.counts.values())} trials suspect")
    parts += _lost_texts(analysis)
    if count := analysis.undeclared_differences:
        parts.append(plural(count, "undeclared difference"))
    return parts


def _boots_text(analysis: RunAnalysis) -> str:
    if analysis.boots > 1:
        restarted = " and ".join(analysis.restarted or ())
        return f"{analysis.boots} boots" + f" (restarts of {restarted}; the host was not rebooted)" * bool(restarted)
    return "one boot" + (f" ({analysis.one_boot.text})" if analysis.one_boot else "")


def _lost_texts(analysis: RunAnalysis) -> Iterator[str]:
    """`kvm-default lost 2 of 16 trials`, for each arm that lost any; several arms count the baseline's trials once."""
    name_sides, counts = sides_of(analysis.comparisons), dict[str, dict[tuple[Scenario, str], SideCounts]]()
    for side in ("baseline", "compared"):
        for comparison in analysis.comparisons:
            of_arm = counts.setdefault(getattr(name_sides(comparison), side), {})
            for name, verdict in comparison.verdicts.items():
                if verdict.metric.is_primary:
                    of_arm[comparison.scenario, name] = getattr(verdict, side)
    for arm, of_arm in counts.items():
        if lost := sum(count.lost for count in of_arm.values()):
            yield f"{arm} lost {lost} of {plural(sum(count.trials for count in of_arm.values()), 'trial')}"


@dataclass(frozen=True)
class _Member:
    """One comparison in a metric."""

    name: str  # the scenario's name in the headline
    sides: Sides
    verdict: Verdict
    of_guest: bool  # a guest against metal


def _is_of_guest(comparison: Comparison) -> bool:
    return comparison.baseline == Arm(METAL) and comparison.accelerator is not Accelerator.NONE


def _common_sides(members: Sequence[_Member]) -> Sides:
    """The names of both sides in a sentence over comparisons with one baseline; its verb is singular."""
    sides = list(dict.fromkeys(member.sides for member in members))
    if len(sides) == 1:
        return sides[0]
    baseline, arms = sides[0].baseline, list(dict.fromkeys(each.compared for each in sides))
    if all(member.of_guest for member in members):
        return Sides("a guest", baseline)
    if len(arms) > _MOST_NAMED:
        return Sides(f"each of {len(arms)} environments", baseline)
    return Sides(f"each of {', '.join(arms[:-1])} and {arms[-1]}", baseline)


@dataclass(frozen=True)
class _MetricVerdicts:
    """The verdicts of one metric."""

    metric: Metric
    members: list[_Member]
    is_one_user: bool = False  # the throughput of a single user, each time

    @classmethod
    def of(cls, analysis: RunAnalysis, metric: Metric) -> "_MetricVerdicts":
        """The verdicts of all comparisons that the metric applies to."""
        comparisons = [c for c in analysis.comparisons if metric.name in c.verdicts and c.verdicts[metric.name].applies]
        labels = labels_of(dict.fromkeys(comparison.scenario for comparison in comparisons))
        has_several_arms = len({comparison.arm for comparison in comparisons}) > 1
        is_emulated = any(comparison.accelerator is Accelerator.TCG for comparison in comparisons)
        name_sides = sides_of(analysis.comparisons)

        def sides(comparison: Comparison) -> Sides:
            plain_sides = name_sides(comparison)
            return (
                replace(plain_sides, compared="the emulated guest")
                if is_emulated and plain_sides.compared == GUEST
                else plain_sides
            )

        def name(comparison: Comparison) -> str:
            label = labels[comparison.scenario]
            return f"{label} on {comparison.arm}" if has_several_arms else label

        members = [
            _Member(name(each), sides(each), each.verdicts[metric.name], _is_of_guest(each)) for each in comparisons
        ]
        is_one_user = metric == THROUGHPUT and all(each.scenario.load.is_one_user for each in comparisons)
        return cls(metric, members, is_one_user)

    def answer(self) -> Answer:
        """The sentence on this metric, with names where it stays short."""
        long, short = self._sentence(named=True), self._sentence(named=False)
        text = long if len(long) <= _ANSWER_LIMIT else short
        kinds = frozenset(member.verdict.kind for member in self.members)
        shown = [member.verdict for member in self.members if member.verdict.kind in DIFFERENT]
        evidence = self._evidence()
        sizes = tuple(dict.fromkeys([*evidence[:1], *self._size_ranges()]))
        return Answer(text, short, "; ".join(evidence), sizes, self.metric, kinds, any(map(is_vague, shown)))

    def _size_ranges(self) -> Iterator[str]:
        """The smallest and the largest size with their intervals: first with the servers' names, then without."""
        for kind in _DIRECTIONS:
            if members := self._members_with(kind):
                ends = [(m.name, estimate_text(m.verdict)) for m in sorted((members[0], members[-1]), key=_ratio)]
                yield " to ".join(dict.fromkeys(f"{name} {size}" for name, size in ends))
                yield " to ".join(dict.fromkeys(size for _, size in ends))
                return

    def _sentence(self, *, named: bool) -> str:
        kinds = [kind for kind in (*_DIRECTIONS, Kind.EQUIVALENT) if self._members_with(kind)]
        if not kinds:
            return self._nothing_decided()
        if len(kinds) > 1:
            return self._counts()
        words, members, total = METRIC_LABELS[self.metric.name], self._members_with(kinds[0]), len(self.members)
        verdicts, sides = [member.verdict for member in members], _common_sides(members)
        if len({member.sides for member in members}) == 1:
            members = [replace(each, name=each.name.removesuffix(f" on {sides.compared}")) for each in members]
        if kinds[0] is Kind.EQUIVALENT:
            margin = percent(max(verdict.margin for verdict in verdicts))
            text = words.same.format(compared=sides.compared, baseline=sides.baseline, amount=margin)
        else:
            text = effect_text(self.metric, self._amounts(members, named=named), sides)
        if len(members) < total:
            open_counts = [
                f"{len(self._members_with(kind))} {KINDS[kind]}" for kind in _OPEN if self._members_with(kind)
            ]
            text += f" in {len(members)} of {plural(total, 'comparison')} ({', '.join(open_counts)})"
        load = "under open load, " if self.metric == TAIL else "for one user, " if self.is_one_user else ""
        return _capital(f"{load}{text}.")

    def _counts(self) -> str:
        """The sentence for verdicts of several kinds: the number of each kind, with the range of the differences."""
        parts, is_one_arm = [], len({member.sides for member in self.members}) == 1
        for kind in KINDS:
            if members := self._members_with(kind):
                arms = {member.sides.compared for member in members}
                arm = f"{arms.pop()} is " if len(arms) == 1 and not is_one_arm else ""
                size = f" ({self._amounts(members, named=False)})" if kind in DIFFERENT else ""
                parts.append(f"{arm}{KINDS[kind]} in {len(members)}{size}")
        of = f"In {plural(len(self.members), 'comparison')} of {METRIC_LABELS[self.metric.name].label}"
        sides = _common_sides(self.members)
        if is_one_arm:
            return f"{of}, {sides.compared} is {', '.join(parts)}."
        return f"{of} with {sides.baseline}: {', '.join(parts)}."

    def _nothing_decided(self) -> str:
        """The sentence when nothing is decided: the verdict of one comparison; of several, the number that show a
        difference in every block.
        """
        label, undecided = METRIC_LABELS[self.metric.name].label, self._members_with(Kind.UNDECIDED)
        if not undecided:
            return f"This run compares no {label}: {because_text(self.members[0].verdict, self.members[0].sides)}."
        total = plural(len(self.members), "comparison")
        if len(self.members) == 1:
            return _capital(f"{label}: {verdict_text(undecided[0].verdict, undecided[0].sides)}.")
        if consistent := [member for member in undecided if shows_in_all_blocks(member.verdict)]:
            words = sorted({direction(member.verdict) for member in consistent})
            count, sides = f"{len(consistent)} of {total}", _common_sides(consistent)
            qualifier = f"on {sides.compared} in every block in {count}"
            return _capital(f"{label}: {' or '.join(words)} {qualifier}, not shown beyond chance.")
        sides, is_one_arm = _common_sides(self.members), len({member.sides for member in self.members}) == 1
        where = f"between {sides.compared} and {sides.baseline}" if is_one_arm else f"from {sides.baseline}"
        return f"No difference in {label} {where} is shown beyond chance in {plural(len(undecided), 'comparison')}."

    def _evidence(self) -> list[str]:
        """`lighttz 0.919× (0.917 to 0.921), nginx 0.910× (…)`; only the ends of the range for many servers.

        Then the verdicts that are equal, undecided or not judged, with their reasons, if there are few.
        """
        parts = []
        for kind in _DIRECTIONS:
            if members := self._members_with(kind):
                sizes = [f"{each.name} {estimate_text(each.verdict)}" for each in sorted(members, key=_ratio)]
                shown = ", ".join(sizes) if len(sizes) <= _MOST_NAMED else f"{sizes[0]} to {sizes[-1]}"
                texts = (explained_text(each.verdict, each.sides, least=_MIN_EXPLAINED) for each in members)
                explained = set(filter(None, texts))
                parts += [shown, *(explained if len(explained) == 1 else ())]
        for kind in (Kind.EQUIVALENT, *_OPEN):
            members = self._members_with(kind)
            if len(members) == len(self.members) == 1 and kind is Kind.UNDECIDED:
                continue
            if len(members) <= _MOST_NAMED:
                parts += [f"{each.name} {verdict_text(each.verdict, each.sides)}" for each in members]
        return parts

    def _members_with(self, kind: Kind) -> list[_Member]:
        """The members with a verdict of this kind; differences are sorted by size."""
        members = [member for member in self.members if member.verdict.kind is kind]
        return sorted(members, key=_size) if kind in DIFFERENT else members

    def _amounts(self, members: list[_Member], *, named: bool) -> str:
        """`0.890× (nginx) and 0.920× (lighttpd)`; of three or more, or without names, the range: `0.890× to 0.920×`."""
        if not named and len(members) > 1 and any(member.verdict.is_at_least for member in members):
            return bound_text(members[0].verdict)  # the least of all
        members = sorted(members, key=_ratio)
        if named:
            texts = [f"{amount_text(member.verdict)} ({member.name})" for member in members]
            return " and ".join(texts) if len(texts) <= 2 else f"{texts[0]} to {texts[-1]}"
        return " to ".join(dict.fromkeys(amount_text(member.verdict) for member in (members[0], members[-1])))


def is_vague(verdict: Verdict) -> bool:
    """Return whether the ends of a ratio's deciding interval are so far apart that its size says little."""
    ends = verdict.estimate
    return bool(ends and ends.low and ends.high and ends.high / ends.low >= VAGUE)


def _ratio(member: _Member) -> float:
    return member.verdict.estimate.value if member.verdict.estimate else 0.0


def _size(member: _Member) -> float:
    """The claimed distance of a ratio from 1, as a factor of 1 or more in either direction; 0 without a ratio."""
    verdict = member.verdict
    ratio = near_end(verdict) if verdict.is_at_least else verdict.estimate and verdict.estimate.value
    return max(ratio, 1 / ratio) if ratio else 0.0
