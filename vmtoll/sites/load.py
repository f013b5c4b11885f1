"""Read and check a site's YAML."""

from pathlib import Path

import yaml
from pydantic import ValidationError

from vmtoll.files import cause_of, parse_yaml
from vmtoll.model.document import first_mistake
from vmtoll.model.errors import SiteError
from vmtoll.model.site import DrawnSite, ListedSite, Site
from vmtoll.paths import SITES as SITES_DIR

__all__ = ["SITES_DIR", "load_site"]


def load_site(path: Path) -> Site:
    """Read a site's YAML; its name is the file's name.

    Raises SiteError if it is missing, is not YAML, or is not valid.
    """
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SiteError(f"{path}: {cause_of(error)}") from error
    except yaml.YAMLError as error:
        raise SiteError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise SiteError(f"{path}: must be a mapping")
    try:
        model: type[Site] = DrawnSite if "files" in data or "pages" not in data else ListedSite
        return model(name=path.stem, **data)
    except ValidationError as error:
        raise SiteError(f"{path}: {first_mistake(error)}") from error
    except TypeError as error:
        raise SiteError(f"{path}: {error}") from error
