"""English for codes and numbers: verdicts, findings, loads, notes, claims, and the headline of a run.

Nothing reads these texts back: code decides by the enums and numbers that they are made of.
"""

# mypy: implicit-reexport
# ruff: noqa: F401, F403

from vmtoll.model.claim import Outcome, Shape
from vmtoll.model.message import *
from vmtoll.report.words.claims import *
from vmtoll.report.words.glossary import *
from vmtoll.report.words.headline import *
from vmtoll.report.words.remarks import *
from vmtoll.report.words.side import *
from vmtoll.report.words.terms import *
from vmtoll.report.words.verdicts import *
from vmtoll.statistics.thresholds import MARGIN
