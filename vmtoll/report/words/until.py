"""How a run ended that went on until its comparisons were known."""

from vmtoll.model.run import Manifest
from vmtoll.model.until import Look, Stop
from vmtoll.report.words.terms import percent, plural


def ending_text(manifest: Manifest) -> str:
    """`Stopped after 16 blocks, at look 3 and 41 minutes, because more blocks would decide no other comparison: 12
    decided.`

    Empty for a run with a fixed number of blocks, and for one that goes on.
    """
    until, looks = manifest.experiment.until, manifest.looks
    if until is None or manifest.stopped is None or not looks:
        return ""
    why = {
        Stop.DECIDED: "more blocks would decide no other comparison",
        Stop.NARROW: f"every comparison that blocks decide is decided or known within ±{until.half_width_pct:g}%",
        Stop.TIME: f"the time is over ({until.at_most_min:g} minutes)",
    }[manifest.stopped]
    last = looks[-1]
    place = f"at look {len(looks)} and {last.measured_s / 60:.3g} minutes"
    return f"Stopped after {plural(last.blocks, 'block')}, {place}, because {why}: {_found(last)}."


def _found(look: Look) -> str:
    counts = {
        "decided": look.decided, "narrow enough": look.narrow, "that more blocks cannot decide": look.refused,
        "still open": len(look.open),
    }  # fmt: skip
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "nothing to compare"


def looks_text(manifest: Manifest) -> str:
    """`after 6 blocks (20% of the 5%), 10 (13%)`: when the run was looked at, and what each look could spend."""
    texts = [f"{look.blocks} blocks ({percent(look.share)} of the 5%)" for look in manifest.looks]
    return f"after {', '.join(texts)}" if texts else ""
