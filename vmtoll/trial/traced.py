"""A trial whose exits are traced: its figures are disturbed, and compared with nothing."""

from vmtoll.machines.session import Session, TrialReporter
from vmtoll.model.exits import ExplainedTrial
from vmtoll.trial.exits import ExitTracer
from vmtoll.trial.measurement import TrialResults
from vmtoll.trial.trial import Trial


class TracedTrial(Trial):
    """Measures the load of the workload's tool alone, without a cross-check. `explain` returns its record."""

    def __init__(self, session: Session, reporter: TrialReporter, name: str) -> None:
        super().__init__(session, reporter, name=name)
        self.tracer = self.driver.tracer = ExitTracer(self.driver.machines)
        self.workload = self.driver.workload = self.workload.model_copy(update={"crosscheck": None})

    def explain(self) -> ExplainedTrial:
        """Measure; a failure becomes a finding of the trial, which then has no exits."""
        record = self.attempt()
        host = self.driver.machines.host
        return ExplainedTrial(
            trial=record, host=host.host.name if host else "", exits=self.tracer.exits if record.primary else ()
        )

    def _send(self) -> TrialResults:
        with self.tracer.tracing():
            return super()._send()
