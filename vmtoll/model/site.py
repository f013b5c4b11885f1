"""A site: what the servers serve, as its YAML describes it."""

from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from vmtoll.model.document import Document

Kind = Literal["html", "gif", "jpeg", "pdf", "doc", "css", "js", "svg", "webp", "woff2"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TEXTS: tuple[Kind, ...] = ("html", "css", "js", "svg")


SMALLEST_GZIP_BYTES = 64


def kind_of(path: str) -> Kind | None:
    """The kind of file, from the path's suffix; None for an unknown suffix."""
    suffix = path.rpartition(".")[2]
    return next((kind for kind in KINDS if suffix == kind or (kind, suffix) == ("jpeg", "jpg")), None)


class Body(Document):
    """The log-normal bulk of the sizes."""

    median_bytes: int = Field(gt=0, description="median of the log-normal bulk")
    sigma: float = Field(gt=0, description="standard deviation of the logarithm")


class Tail(Document):
    """The Pareto tail; `share` of the files are drawn from it."""

    share: float = Field(ge=0, lt=1, description="share of the files that are drawn from the Pareto tail")
    from_bytes: int = Field(gt=0, description="smallest size of the tail")
    alpha: float = Field(gt=0, description="exponent of the tail")


class Popularity(Document):
    """Zipf weights that add up to `lines`."""

    zipf_exponent: float = Field(ge=0, description="0: all files alike")
    lines: int = Field(gt=0, description="lines of the URL list, to which the weights add up")


class Page(Document):
    """A file with its own weight. With `gzip`, the uncompressed file is written beside it, and never requested."""

    size_bytes: int = Field(gt=0, description="size; with `gzip` that of the compressed variant")
    weight: int = Field(gt=0, description="lines of the URL list that ask for it")
    gzip: bool = Field(default=False, description="the list asks for `<path>.gz`, a compressed variant")

    @model_validator(mode="after")
    def _room_for_a_variant(self) -> Self:
        if self.gzip and self.size_bytes < SMALLEST_GZIP_BYTES:
            raise ValueError(f"gzip: needs size_bytes of {SMALLEST_GZIP_BYTES} or more")
        return self


def _known_kinds(pages: dict[str, int | str | Page]) -> dict[str, int | str | Page]:
    for path, content in pages.items():
        if kind_of(path) is None or path.startswith("/") or content == "" or (isinstance(content, int) and content < 1):
            raise ValueError(
                f"{path}: must be a relative path to a kind of file ({', '.join(KINDS)}), and bytes or text"
            )
        if isinstance(content, Page) and content.gzip and kind_of(path) not in TEXTS:
            raise ValueError(f"{path}: gzip: only text has a compressed variant ({', '.join(TEXTS)})")
    return pages


Pages = Annotated[dict[str, int | str | Page], AfterValidator(_known_kinds)]


class _SiteBase(Document):
    name: str
    description: str = Field(description="what it stands for, one sentence")
    seed: int = Field(ge=0, description="of the sizes, kinds, weights and contents")


class ListedSite(_SiteBase):
    """Each file by its path, with its size in bytes (and weight) or its text; the path's suffix gives the kind."""

    pages: Pages = Field(
        min_length=1, description="path → size in bytes, text, or a page with its weight; the kind is the path's suffix"
    )


class DrawnSite(_SiteBase):
    """Files drawn from distributions of sizes, kinds and popularity; `pages` are served too, outside of the mix."""

    files: int = Field(ge=2, description="how many files are drawn")
    smallest_bytes: int = Field(ge=0, description="smallest size")
    largest_bytes: int = Field(gt=0, description="largest size")
    body: Body = Field(description="the bulk of the sizes")
    tail: Tail = Field(description="the large files")
    kinds: dict[Kind, int] = Field(description="kind of file → its parts of the whole")
    popularity: Popularity = Field(description="how often each file is asked for")
    pages: Pages = Field(default_factory=dict, description="further files, outside of the mix")

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
