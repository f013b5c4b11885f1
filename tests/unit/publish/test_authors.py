"""Authors become persons or organizations of the Citation File Format."""

import pytest

from vmtoll.model.errors import UserError
from vmtoll.publish.authors import author_of

ORCID = "0000-0002-1825-0097"


@pytest.mark.parametrize(
    ("text", "citation", "name"),
    [
        ("Ada Example", {"family-names": "Example", "given-names": "Ada"}, "Ada Example"),
        ("A. B. Example", {"family-names": "Example", "given-names": "A. B."}, "A. B. Example"),
        ("Example, Ada B.", {"family-names": "Example", "given-names": "Ada B."}, "Ada B. Example"),
        ("García Márquez, José", {"family-names": "García Márquez", "given-names": "José"}, "José García Márquez"),
        ("Anna van der Berg", {"family-names": "Berg", "given-names": "Anna", "name-particle": "van der"},
         "Anna van der Berg"),
        ("van der Berg, Anna", {"family-names": "Berg", "given-names": "Anna", "name-particle": "van der"},
         "Anna van der Berg"),
        ("{Example Labs}", {"name": "Example Labs"}, "Example Labs"),
        ("anonymous", {"name": "anonymous"}, "anonymous"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("orcid", ["", f" <{ORCID}>", f" <https://orcid.org/{ORCID}>"])
def test_names_are_those_of_persons_or_organizations(
    text: str, citation: dict[str, str], name: str, orcid: str
) -> None:
    author = author_of(text + orcid)
    url = {"orcid": f"https://orcid.org/{ORCID}"} if orcid else {}
    assert author.citation == citation | url
    person = "family-names" in citation
    assert author.contributor["title"] == author.name == name
    assert ("familyName" in author.contributor) is person
    assert author.contributor.get("path") == url.get("orcid")


@pytest.mark.parametrize("orcid", ["0000-0001-5109-3700", "0000-0002-1694-233X", ORCID])
def test_right_orcids_are_taken(orcid: str) -> None:
    assert author_of(f"Ada Example <{orcid}>").orcid == orcid


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Ada Example <{ORCID[:-1]}8>", "the ORCID's last digit does not fit"),
        ("Ada Example <ada@example.org>", "no name, or no ORCID in <>"),
        (f"<{ORCID}>", "no name, or no ORCID in <>"),
        ("  ", "no name, or no ORCID in <>"),
        *((text, "not a name") for text in ("{}", "{ }", ",", ", Ada", "Example,", "-", "...", "A, B, C", "A\x07B")),
        *((text, "unbalanced braces") for text in ("{Example", "Example}", "{{Example}}")),
    ],
)
def test_what_names_no_author_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        author_of(text)
