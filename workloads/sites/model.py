"""What a site's YAML may say."""

from pathlib import Path
from typing import Annotated, Literal, Self, get_args

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

SITES_DIR = Path(__file__).parent

Kind = Literal["html", "gif", "jpeg", "pdf", "doc"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def kind_of(path: str) -> Kind | None:
    """The kind of file that a path's suffix stands for."""
    suffix = path.rpartition(".")[2]
    return next((kind for kind in KINDS if suffix == kind or (kind, suffix) == ("jpeg", "jpg")), None)


class SiteError(Exception):
    """The site's YAML cannot be used; the message names file and key."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Body(_Model):
    """The log-normal bulk of the sizes."""

    median_bytes: int = Field(gt=0)
    sigma: float = Field(gt=0)


class Tail(_Model):
    """The Pareto tail; `share` of the files are drawn from it."""

    share: float = Field(ge=0, lt=1)
    from_bytes: int = Field(gt=0)
    alpha: float = Field(gt=0)


class Popularity(_Model):
    """Zipf weights that add up to `lines`."""

    zipf_exponent: float = Field(ge=0)
    lines: int = Field(gt=0)


class Page(_Model):
    """A file with its own weight: how many lines of the URL list ask for it."""

    size_bytes: int = Field(gt=0)
    weight: int = Field(gt=0)


def _known_kinds(pages: dict[str, int | str | Page]) -> dict[str, int | str | Page]:
    for path, content in pages.items():
        if kind_of(path) is None or path.startswith("/") or content == "" or (isinstance(content, int) and content < 1):
            raise ValueError(
                f"{path}: must be a relative path to a kind of file ({', '.join(KINDS)}), and bytes or text"
            )
    return pages


Pages = Annotated[dict[str, int | str | Page], AfterValidator(_known_kinds)]


class _Site(_Model):
    name: str
    description: str
    seed: int = Field(ge=0)


class ListedSite(_Site):
    """Each file by its path, with its size in bytes (and weight) or its very text; the kind is the path's suffix."""

    pages: Pages = Field(min_length=1)


class DrawnSite(_Site):
    """Files drawn from distributions of sizes, kinds and popularity; `pages` are beside them and outside of the mix."""

    files: int = Field(ge=2)
    smallest_bytes: int = Field(ge=0)
    largest_bytes: int = Field(gt=0)
    body: Body
    tail: Tail
    kinds: dict[Kind, int]
    popularity: Popularity
    pages: Pages = Field(default_factory=dict)

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.popularity.lines < self.files:
            raise ValueError(f"popularity.lines must be at least files ({self.files})")
        if not self.kinds or min(self.kinds.values()) < 1:
            raise ValueError("kinds must name at least one kind, each with a positive share")
        if "html" not in self.kinds:
            raise ValueError("kinds must contain html: a site has an index page")
        if self.smallest_bytes >= self.largest_bytes:
            raise ValueError("smallest_bytes must be below largest_bytes")
        return self


Site = ListedSite | DrawnSite


def load_site(path: Path) -> Site:
    """Read a site's YAML; its name is the file's name.

    Raises SiteError when it is missing, is not YAML or says something it may not.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise SiteError(f"{path}: {error}") from error
    if not isinstance(data, dict):
        raise SiteError(f"{path}: must be a mapping")
    try:
        model: type[Site] = DrawnSite if "files" in data or "pages" not in data else ListedSite
        return model(name=path.stem, **data)
    except (ValidationError, TypeError) as error:
        raise SiteError(f"{path}: {error}") from error
