"""The headline of a run: a short sentence per metric, what these rest on, and explanations of their words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from vmtoll.analysis.claims import count_outcomes
from vmtoll.model.analysis import RunAnalysis
from vmtoll.model.finding import Validity
from vmtoll.model.hardware import Hardware
from vmtoll.model.message import message, number, percent, plural
from vmtoll.model.metric import CPU, HOST_CPU, TAIL, THROUGHPUT, Metric
from vmtoll.model.run import Manifest
from vmtoll.model.trial import METAL, Accelerator, Arm, Scenario
from vmtoll.model.until import Look
from vmtoll.model.verdict import DECIDED, DIFFERENT, Comparison, Kind, SideCounts, Verdict
from vmtoll.report.words.glossary import GLOSSARY
from vmtoll.report.words.terms import METRIC_LABELS, labels_of, load_text
from vmtoll.report.words.verdicts import (
    GUEST,
    Sides,
    because_text,
    bound_text,
    claimed_text,
    direction,
    effect_text,
    estimate_text,
    explained_text,
    near_end,
    shows_in_all_blocks,
    sides_of,
    verdict_text,
    word_text,
)

SENTENCE_LIMIT = 300
_ANSWER_LIMIT = 130  # of characters; a longer answer leaves the servers' names to its evidence
_SIZE_LIMIT = 80  # of characters
_MOST_NAMED = 3
_MIN_EXPLAINED = 0.05  # share of a difference that findings can explain; a smaller one is not mentioned
VAGUE = 100.0  # an interval over two decades shows the direction, not the size
_KVM = {
    Hardware.EMULATED: "KVM on emulated hardware, not what KVM costs: ",
    Hardware.NESTED: "Nested KVM: ",
    Hardware.PVM: "KVM by kvm_pvm: ",
}
_DIRECTIONS = (Kind.SLOWER, Kind.FASTER)
_OPEN = (Kind.UNDECIDED, Kind.NOT_JUDGED)
_COSTS = (HOST_CPU, CPU)


@dataclass(frozen=True)
class Answer:
    """The answer of one metric, in a short sentence."""

    text: str
    short: str  # the same without names
    evidence: str = ""  # the intervals or reasons behind it
    size: str = ""  # the least and the largest difference with their intervals
    metric: Metric | None = None
    kinds: frozenset[Kind] = frozenset()
    is_vague: bool = False  # the ends of a ratio's interval are a hundred times apart or more


@dataclass(frozen=True)
class Headline:
    """`answers`: the first is the report's heading; `warning`: that most trials have findings; `basis`: `6 blocks`,
    `one host`.
    """

    answers: tuple[Answer, ...]
    basis: tuple[str, ...]
    warning: str = ""


@dataclass(frozen=True)
class Explanation:
    """A word of the headline, explained in a sentence or two."""

    term: str  # its entry in the glossary
    word: str
    text: str


def headline(analysis: RunAnalysis) -> Headline:
    """The answers on throughput, tail and CPU per request that the run compares; `_rank` chooses the first."""
    sentences = [_Sentences(analysis, metric) for metric in (THROUGHPUT, TAIL)]
    costs = [_Sentences(analysis, metric) for metric in _COSTS]
    sentences += [cost for cost in costs if any(member.verdict.estimate for member in cost.members)][:1]
    answers = sorted((each.answer() for each in sentences if each.members), key=_rank)
    if len(answers) > 1:  # only the first place is by rank
        in_order = [each.metric for each in sentences]
        answers[1:] = sorted(answers[1:], key=lambda answer: in_order.index(answer.metric or THROUGHPUT))
    if not answers:
        text = _without_comparison(analysis)
        answers = [Answer(text, text)]
    if prefix := "".join(text for kind, text in _KVM.items() if kind in analysis.kvm_hardware):
        first = answers[0]
        answers[0] = replace(first, text=prefix + _lower(first.text), short=prefix + _lower(first.short))
    return Headline(tuple(answers), tuple(_basis(analysis)), _warning(analysis))


def sentence(analysis: RunAnalysis) -> str:
    """The headline as plain text of at most 300 characters, for others to cite: in full; if that is too long, short and
    with the ends of the sizes; else the first answer and these sizes alone.
    """
    result = headline(analysis)
    start = "Emulation (TCG), not KVM: " if analysis.emulated else ""
    if not analysis.complete:
        progress = f" ({sum(analysis.counts.values())} of {analysis.planned} trials)" if analysis.planned else ""
        start += f"incomplete run{progress}: "
    answers = [answer for answer in result.answers if answer.metric not in _COSTS] or [result.answers[0]]
    evidence = [answer.evidence for answer in answers if answer.evidence]
    basis, size = ", ".join(result.basis), next((answer.size for answer in answers if answer.size), "")
    shorts = [answer.short for answer in answers]
    text = ""
    for texts, rests_on in (
        ([answer.text for answer in answers], [*evidence, basis]),
        *((texts, [*filter(None, [size]), basis]) for texts in (shorts, shorts[:1])),
        (shorts[:1], [size or basis]),
    ):
        body = " ".join(texts)
        body = _lower(body) if start and not body.startswith(tuple(_KVM.values())) else body
        text = _capital(f"{start}{body} Evidence: {'; '.join(rests_on)}.")
        if len(text) <= SENTENCE_LIMIT:
            return text
    return text[: SENTENCE_LIMIT - 1] + "…"


def explanations(analysis: RunAnalysis) -> list[Explanation]:
    """The words in this run's headline and verdicts that a reader may not know, as the glossary explains them."""
    verdicts = [v for c in analysis.comparisons for v in c.verdicts.values() if v.applies]
    kinds = {v.kind for v in verdicts}
    needed = {
        "bound": any(v.is_at_least for v in verdicts),
        "every-block": any(v.by_every_block for v in verdicts),
        "wide": any(answer.is_vague for answer in headline(analysis).answers),
        "equivalent": Kind.EQUIVALENT in kinds,
        "undecided": Kind.UNDECIDED in kinds,
        "not-judged": Kind.NOT_JUDGED in kinds,
        "noise-floor": analysis.noise_floor is not None,
    }
    shown = [_explanation(name, analysis.margin) for name, is_needed in needed.items() if is_needed]
    if analysis.noise_floor is None and analysis.comparisons:
        text = "The run has no A/A control: it measures no environment twice."
        shown.append(Explanation("noise-floor", "A/A difference unknown", text))
    return shown


def _explanation(name: str, margin: float) -> Explanation:
    """The first two sentences of an entry of the glossary."""
    word, text = GLOSSARY[name]
    first = ". ".join(text.replace("{margin}", percent(margin)).rstrip(".").split(". ")[:2])
    return Explanation(name, word, f"{first}.")


def _capital(text: str) -> str:
    """The text with a capital first letter, unless it starts with a name such as kvm-default."""
    return text if "-" in text.partition(" ")[0] else text[0].upper() + text[1:]


def _lower(text: str) -> str:
    return text[0].lower() + text[1:]


def _rank(answer: Answer) -> int:
    """The lowest rank is the heading: decided throughput or tail, then undecided answers, then decided CPU."""
    if answer.kinds & DECIDED:
        return 2 if answer.metric in _COSTS else 0
    return 1 if Kind.UNDECIDED in answer.kinds else 3


def _warning(analysis: RunAnalysis) -> str:
    trials, valid = sum(analysis.counts.values()), analysis.counts.get(Validity.VALID, 0)
    if 2 * valid >= trials:
        return ""
    return f"{trials - valid} of {trials} trials have a finding; each interval allows for what they may have changed"


def _without_comparison(analysis: RunAnalysis) -> str:
    if analysis.searches:
        return "A search found the highest rate that each side carries: see the capacity of one machine."
    if analysis.claims:
        counts = [f"{count} {outcome.text}" for outcome, count in count_outcomes(analysis.claims).items() if count]
        return f"Of {plural(len(analysis.claims), 'published claim')}: {', '.join(counts)}."
    if analysis.comparisons:
        return "This run measured nothing that compares its environments."
    return "There is no second environment to compare."


def _basis(analysis: RunAnalysis) -> Iterator[str]:
    yield from (plural(analysis.blocks, "block"), "one host", _boots_text(analysis))
    if analysis.noise_floor is None:
        yield "A/A difference unknown"
    if suspect := analysis.counts.get(Validity.SUSPECT, 0):
        yield f"{suspect} of {sum(analysis.counts.values())} trials suspect"
    yield from _lost_texts(analysis)
    if count := analysis.undeclared_differences:
        yield plural(count, "undeclared difference")


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

    name: str  # the scenario's name in the headline, with the load where a server had several
    load: str
    sides: Sides
    verdict: Verdict
    of_guest: bool  # a guest against metal

    @property
    def ratio(self) -> float:
        return self.verdict.estimate.value if self.verdict.estimate else 0.0

    @property
    def size(self) -> float:
        """The claimed distance of the ratio from 1, as a factor of 1 or more in either direction; 0 without a ratio."""
        ratio = near_end(self.verdict) if self.verdict.is_at_least else self.ratio
        return max(ratio, 1 / ratio) if ratio else 0.0


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


class _Sentences:
    """Sentences on the verdicts of one metric, over all comparisons that it applies to."""

    def __init__(self, analysis: RunAnalysis, metric: Metric) -> None:
        of_metric = [c for c in analysis.comparisons if metric.name in c.verdicts and c.verdicts[metric.name].applies]
        labels = labels_of(dict.fromkeys(comparison.scenario for comparison in of_metric))
        has_several_arms = len({comparison.arm for comparison in of_metric}) > 1
        is_emulated = any(comparison.accelerator is Accelerator.TCG for comparison in of_metric)
        name_sides = sides_of(analysis.comparisons)

        def member(comparison: Comparison) -> _Member:
            sides, name = name_sides(comparison), labels[comparison.scenario]
            if is_emulated and sides.compared == GUEST:
                sides = replace(sides, compared="the emulated guest")
            if has_several_arms:
                name = f"{name} on {comparison.arm}"
            of_guest = comparison.baseline == Arm(METAL) and comparison.accelerator is not Accelerator.NONE
            load = load_text(comparison.scenario.load)
            return _Member(name, load, sides, comparison.verdicts[metric.name], of_guest)

        self.metric, self.members = metric, list(map(member, of_metric))
        self.label = METRIC_LABELS[metric.name].label
        is_one_user = metric == THROUGHPUT and all(each.scenario.load.is_one_user for each in of_metric)
        self._load = "under open load, " if metric == TAIL else "for one user, " if is_one_user else ""

    def answer(self) -> Answer:
        """The sentence on this metric, with names where it stays short."""
        long, short = self._sentence(named=True), self._sentence(named=False)
        different = [member.verdict for member in self.members if member.verdict.kind in DIFFERENT]
        return Answer(
            long if len(long) <= _ANSWER_LIMIT else short,
            short,
            "; ".join(self._evidence()),
            next((self._ends(kind) for kind in _DIRECTIONS if self._with(kind)), ""),
            self.metric,
            frozenset(member.verdict.kind for member in self.members),
            any(map(is_vague, different)),
        )

    def _ends(self, kind: Kind) -> str:
        """The least and the largest ratio of a kind, with their intervals, and the servers where there is room."""
        by_size = self._with(kind)
        ends = sorted((by_size[0], by_size[-1]), key=lambda member: member.ratio)
        texts = [(member.name, estimate_text(member.verdict)) for member in ends]
        named = " to ".join(dict.fromkeys(f"{name} {size}" for name, size in texts))
        return named if len(named) <= _SIZE_LIMIT else " to ".join(dict.fromkeys(size for _, size in texts))

    def _sentence(self, *, named: bool) -> str:
        kinds = [kind for kind in (*_DIRECTIONS, Kind.EQUIVALENT) if self._with(kind)]
        first = self.members[0]
        if not kinds and not self._with(Kind.UNDECIDED):
            return f"This run compares no {self.label}: {because_text(first.verdict, first.sides)}."
        if not kinds and len(self.members) == 1:
            return _capital(f"{self.label}: {verdict_text(first.verdict, first.sides)}.")
        if len(kinds) != 1:
            return self._counts()
        members, total = self._with(kinds[0]), len(self.members)
        sides = _common_sides(members)
        if len({member.sides for member in members}) == 1:
            members = [replace(each, name=each.name.removesuffix(f" on {sides.compared}")) for each in members]
        if kinds[0] is Kind.EQUIVALENT:
            margin = percent(max(member.verdict.margin for member in members))
            text = METRIC_LABELS[self.metric.name].same.format(
                compared=sides.compared, baseline=sides.baseline, amount=margin
            )
        else:
            text = effect_text(self.metric, self._amounts(members, named=named), sides)
        if len(members) < total:
            others = [f"{len(self._with(kind))} {kind.text}" for kind in _OPEN if self._with(kind)]
            text += f" in {len(members)} of {plural(total, 'comparison')} ({', '.join(others)})"
        return _capital(f"{self._load}{text}.")

    def _counts(self) -> str:
        """The number of verdicts of each kind, with the range of the differences: `Requests per second of the guest
        against metal, 3 comparisons: slower in 2 (0.700× to 0.800×), undecided in 1.`
        """
        parts, sides = [], _common_sides(self.members)
        is_one_arm = len({member.sides for member in self.members}) == 1

        def on(members: list[_Member]) -> str:
            arms = {member.sides.compared for member in members}
            return "" if is_one_arm or len(arms) > 1 else f" on {arms.pop()}"

        for kind in (*_DIRECTIONS, Kind.EQUIVALENT, *_OPEN):
            if members := self._with(kind):
                size = f" ({self._amounts(members, named=False)})" if kind in DIFFERENT else ""
                alike = [member for member in members if shows_in_all_blocks(member.verdict)]
                if kind is Kind.UNDECIDED and alike:
                    shown = " or ".join(sorted({direction(member.verdict) for member in alike}))
                    size = f" ({shown} in every block in {len(alike)}{on(alike)})"
                parts.append(f"{word_text(members[0].verdict)}{on(members)} in {len(members)}{size}")
        of = f" of {sides.compared}" if is_one_arm else ""
        total = plural(len(self.members), "comparison")
        return _capital(f"{self.label}{of} against {sides.baseline}, {total}: {', '.join(parts)}.")

    def _evidence(self) -> list[str]:
        """`lighttz 0.919× (0.917 to 0.921), nginx 0.910× (…)` for each load; for many servers only the ends of the
        range.

        Then the verdicts that are equal, undecided or not judged, with their reasons, if there are few.
        """
        parts = []
        for kind in _DIRECTIONS:
            if members := sorted(self._with(kind), key=lambda member: member.ratio):
                texts = (explained_text(each.verdict, each.sides, least=_MIN_EXPLAINED) for each in self._with(kind))
                explained = set(filter(None, texts))
                sizes_by_load: dict[str, list[str]] = {each.load: [] for each in self.members}
                for each in members:
                    sizes_by_load[each.load].append(f"{each.name} {estimate_text(each.verdict)}")
                parts += [
                    ", ".join(sizes) if len(sizes) <= _MOST_NAMED else f"{sizes[0]} to {sizes[-1]}"
                    for sizes in sizes_by_load.values() if sizes
                ]  # fmt: skip
                parts += explained if len(explained) == 1 else ()
        for kind in (Kind.EQUIVALENT, *_OPEN):
            members = self._with(kind)
            is_sentence = len(members) == len(self.members) == 1 and kind is Kind.UNDECIDED
            if len(members) <= _MOST_NAMED and not is_sentence:
                parts += [f"{each.name} {verdict_text(each.verdict, each.sides)}" for each in members]
        return parts

    def _with(self, kind: Kind) -> list[_Member]:
        """The members with a verdict of this kind; differences are sorted by size."""
        members = [member for member in self.members if member.verdict.kind is kind]
        return sorted(members, key=lambda member: member.size) if kind in DIFFERENT else members

    def _amounts(self, members: list[_Member], *, named: bool) -> str:
        """`0.890× (nginx) and 0.920× (lighttpd)`; of three or more, or without names, the range: `0.890× to 0.920×`."""
        if not named and len(members) > 1 and any(member.verdict.is_at_least for member in members):
            return bound_text(members[0].verdict)  # the least of all
        members = sorted(members, key=lambda member: member.ratio)
        if named:
            texts = [f"{claimed_text(member.verdict)} ({member.name})" for member in members]
            return " and ".join(texts) if len(texts) <= 2 else f"{texts[0]} to {texts[-1]}"
        return " to ".join(dict.fromkeys(claimed_text(member.verdict) for member in (members[0], members[-1])))


def is_vague(verdict: Verdict) -> bool:
    """Return whether the ends of a ratio's deciding interval are so far apart that its size says little."""
    ends = verdict.estimate
    return bool(ends and ends.low and ends.high and ends.high / ends.low >= VAGUE)


# ---- the end of a run that measured until its comparisons were decided


def ending_text(manifest: Manifest) -> str:
    """`Stopped after 16 blocks and 41 minutes, because more blocks would decide no other comparison. Comparisons: 12
    decided.`

    Empty for a run with a fixed number of blocks, and for one that has not stopped.
    """
    until, looks = manifest.experiment.until, manifest.looks
    if until is None or manifest.stopped is None or not looks:
        return ""
    why = message(manifest.stopped.text, until.model_dump())
    last = looks[-1]
    extent = f"{plural(last.blocks, 'block')} and {number(last.measured_s / 60)} minutes"
    return f"Stopped after {extent}, because {why}. Comparisons: {_counts_text(last)}."


def _counts_text(look: Look) -> str:
    counts = {
        "decided": look.decided, "narrow enough": look.narrow, "undecidable by more blocks": look.refused,
        "open": len(look.open),
    }  # fmt: skip
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "none"


def looks_text(manifest: Manifest) -> str:
    """`after 6 blocks (20% of the 5%), 10 blocks (13% of the 5%)`: the looks, and the share that each may spend."""
    texts = [f"{look.blocks} blocks ({percent(look.share)} of the 5%)" for look in manifest.looks]
    return f"after {', '.join(texts)}" if texts else ""
