"""Authors of a bundle: persons with given and family names, or organizations."""

import re
from dataclasses import dataclass

from vmtoll.model.errors import UserError

_ORCID = re.compile(r"(.*?)\s*<(?:https://orcid\.org/)?([0-9]{4}-[0-9]{4}-[0-9]{4}-[0-9]{3}[0-9X])>")
_FORMS = 'give "Given Family <0000-0002-1825-0097>", "Family, Given" or "{Organization}"; the ORCID may be left out'


@dataclass(frozen=True)
class Author:
    """A person (`family`, and `particle` before it, such as "van"), or an organization (`family` alone).

    `orcid` is empty, or the identifier without its URL.
    """

    family: str
    given: str = ""
    particle: str = ""
    orcid: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.given, self.particle, self.family)))

    @property
    def url(self) -> str | None:
        return f"https://orcid.org/{self.orcid}" if self.orcid else None

    @property
    def citation(self) -> dict[str, str]:
        """Person or entity of the Citation File Format 1.2.0."""
        person = {"family-names": self.family, "given-names": self.given, "name-particle": self.particle}
        names = person if self.given or self.particle else {"name": self.family}
        return {key: value for key, value in {**names, "orcid": self.url}.items() if value}

    @property
    def contributor(self) -> dict[str, object]:
        """Contributor of the Data Package standard, version 2."""
        family = " ".join(filter(None, (self.particle, self.family)))
        person = {"givenName": self.given, "familyName": family} if self.given or self.particle else {}
        contributor = {"title": self.name, **person, "path": self.url, "roles": ["author"]}
        return {key: value for key, value in contributor.items() if value}


def author_of(text: str) -> Author:
    """Parse an author; a single word, or text in braces, is an organization.

    Raises UserError for a text without a name, and for an ORCID whose check digit is wrong.
    """
    match = _ORCID.fullmatch(text.strip())
    name, orcid = match.groups() if match else (text.strip(), "")
    if not name or "<" in name or ">" in name:
        raise UserError(f"--author {text!r}: no name, or no ORCID in <>; {_FORMS}")
    is_organization = name.startswith("{") and name.endswith("}")
    parts = [name[1:-1]] if is_organization else name.split(",")
    if len(parts) > 2 or not all(re.search(r"\w", part) for part in parts) or not parts[0].isprintable():
        raise UserError(f"--author {text!r}: not a name; {_FORMS}")
    if "{" in parts[0] or "}" in parts[-1]:
        raise UserError(f"--author {text!r}: unbalanced braces; {_FORMS}")
    if orcid and orcid[-1] != _check_digit(orcid):
        raise UserError(f"--author {text!r}: the ORCID's last digit does not fit the others; {_FORMS}")
    if is_organization:
        return Author(name[1:-1].strip(), orcid=orcid)
    if "," in name:
        words, given = name.partition(",")[0].split(), name.partition(",")[2].strip()
    else:
        *before, last = name.split()
        first_particle = next((i for i, word in enumerate(before) if i and word.islower()), len(before))
        words, given = [*before[first_particle:], last], " ".join(before[:first_particle])
    particles = [word for word in words[:-1] if word.islower()]
    return Author(" ".join(word for word in words if word not in particles), given, " ".join(particles), orcid)


def _check_digit(orcid: str) -> str:
    """Return the last digit of an ORCID: ISO/IEC 7064, MOD 11-2."""
    total = 0
    for digit in orcid.replace("-", "")[:-1]:
        total = (total + int(digit)) * 2
    return "0123456789X"[(12 - total % 11) % 11]
