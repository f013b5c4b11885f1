"""In words: by what an experiment makes two of its environments different."""

from collections.abc import Mapping

from vmtoll.model.experiment import Experiment, ProfileVariant


def profile_text(variant: ProfileVariant) -> str:
    """`kvm-default with kernel linux-image-cloud-amd64`."""
    return f"{variant.of} with {', '.join(f'{key} {_value(value)}' for key, value in variant.keys.items())}"


def factors_text(experiment: Experiment, environment: str, baseline: str) -> str:
    """`b differs from a by design in kernel: linux-image-b instead of linux-image-a`; empty where what differs is
    unknown, or nothing.
    """
    values, of_baseline = _factors(experiment, environment), _factors(experiment, baseline)
    if values is None or of_baseline is None or values["of"] != of_baseline["of"]:
        return ""
    base = values["of"]
    parts = [
        f"{factor}: {values.get(factor, f'as in {base}')} instead of {of_baseline.get(factor, f'that of {base}')}"
        for factor in {**of_baseline, **values}
        if values.get(factor) != of_baseline.get(factor)
    ]
    return f"{environment} differs from {baseline} by design in {'; '.join(parts)}" if parts else ""


def _factors(experiment: Experiment, environment: str) -> Mapping[str, str] | None:
    """Factor → its value in an environment, where it is set, with `of`: the environment that it is made out of; None
    for an operation, and for a change by a command that does not say what it changes.
    """
    if environment in experiment.during:
        return None
    change, machine = experiment.changes.get(environment), experiment.machine_of(environment)
    if change and change.explains is None:
        return None
    variant = experiment.profiles.get(machine)
    values = {key: _value(value) for key, value in variant.keys.items()} if variant else {}
    if change:
        values |= dict.fromkeys(change.differs_in or (), f"that of `{change.apply}`")
        values |= {name: str(value) for name, value in {**change.values, **change.sysctls}.items()}
    return {"of": variant.of if variant else machine, **values}


def _value(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text or "none"
