"""English for codes and numbers: verdicts, findings, loads, notes, claims, and the headline of a run.

Nothing reads these texts back: code decides by the enums and numbers that they are made of.
"""

# mypy: implicit-reexport
# ruff: noqa: F401, I001

from vmtoll.report.words.claims import (
    OUTCOMES, SHAPES, estimator_text, heading_text, point_text, published_text, ratio_text, reason_text, reasons_text,
    side_text,
)  # fmt: skip
from vmtoll.report.words.density import (
    HEADINGS as DENSITY_HEADINGS,
    carried_text,
    count_cells,
    density_notes,
    hosts_text,
    tiles_text,
)
from vmtoll.report.words.exits import (
    HEADINGS as EXIT_HEADINGS,
    PRICES as EXIT_PRICES,
    exit_lines,
    exits_text,
    prices_text as exit_prices_text,
    reason_cells,
    tracing_text,
)
from vmtoll.report.words.factors import factors_text, profile_text
from vmtoll.report.words.first_answers import (
    HEADINGS as START_HEADINGS,
    PARTS as PART_NAMES,
    accuracy_text,
    first_answer_text,
    longest_text,
    start_cells,
    start_lines,
    start_text,
)
from vmtoll.report.words.glossary import (
    CAMPAIGN_TERMS, DISCLOSURE_TERMS, EXPLORER_TERMS, GLOSSARY, REPLICATION_TERMS, REPORT_TERMS,
)  # fmt: skip
from vmtoll.report.words.headline import SENTENCE_LIMIT, explanations, headline, is_vague, sentence
from vmtoll.report.words.operations import (
    HEADINGS as OPERATION_HEADINGS,
    deed_text,
    migration_text,
    noticed_text,
    open_ended_text,
    operation_lines,
)
from vmtoll.report.words.remarks import MOST_REMARKS, next_steps, remarks
from vmtoll.report.words.until import ending_text, looks_text
from vmtoll.model.message import (
    DASH,
    UNITS,
    digits,
    duration,
    figure,
    level,
    number,
    p_value,
    percent,
    plural,
    ratio,
    share,
    signed,
)
from vmtoll.report.words.terms import (
    ACCELERATORS,
    EMULATION,
    HARDWARE,
    KVM_HARDWARE,
    LIMITERS,
    METRIC_LABELS,
    amount_text,
    arm_text,
    change_text,
    co_location_text,
    head_text,
    lab_text,
    labels_of,
    load_text,
    module_text,
    platform_text,
    scenario_labels,
)
from vmtoll.report.words.verdicts import (
    KINDS, Naming, Sides, because_text, client_text, control_text, estimate_text, explained_text, interval_text,
    limiters_text, metric_text, note_text, notes_text, percentile_text, sides_of, step_parts, step_text, trials_text,
    undecided_text, verdict_parts, verdict_text, word_text,
)  # fmt: skip
from vmtoll.report.words.waits import wait_text
from vmtoll.statistics.thresholds import MARGIN
