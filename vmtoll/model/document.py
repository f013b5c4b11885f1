"""The base of every document that a user writes or a run records."""

from pydantic import BaseModel, ConfigDict


class Document(BaseModel):
    """No unknown key, no value of a wrong type, no infinity."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)
