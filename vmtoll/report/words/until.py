"""The end, in words, of a run that measured until its comparisons were decided."""

from vmtoll.model.message import percent, plural
from vmtoll.model.run import Manifest
from vmtoll.model.until import Look, Stop


def ending_text(manifest: Manifest) -> str:
    """`Stopped after 16 blocks and 41 minutes, because more blocks would decide no other comparison. Comparisons: 12
    decided.`

    Empty for a run with a fixed number of blocks, and for one that has not stopped.
    """
    until, looks = manifest.experiment.until, manifest.looks
    if until is None or manifest.stopped is None or not looks:
        return ""
    why = {
        Stop.DECIDED: "more blocks would decide no other comparison",
        Stop.NARROW: f"every comparison that blocks decide is decided or known within ±{until.half_width_pct:g}%",
        Stop.TIME: f"the time limit ({until.at_most_min:g} minutes) was over",
    }[manifest.stopped]
    last = looks[-1]
    extent = f"{plural(last.blocks, 'block')} and {last.measured_s / 60:.3g} minutes"
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
