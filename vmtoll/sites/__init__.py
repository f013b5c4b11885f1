"""Sites: what the servers serve, drawn deterministically from a seed.

`workloads/sites/<site>.yml` describes a site; `build` writes it, `site_files` lists every file with its size, digest
and weight, `paths` their paths alone, `url_list` turns the weights into the lines that a load tool walks through.
"""

from vmtoll.model.errors import SiteError
from vmtoll.model.site import Site
from vmtoll.sites.build import build, paths, site_files
from vmtoll.sites.load import SITES_DIR, load_site
from vmtoll.sites.manifest import NO_FILES, SiteFile, SiteFiles, lockstep_list, url_list

__all__ = [
    "NO_FILES", "SITES_DIR", "Site", "SiteError", "SiteFile", "SiteFiles", "build", "load_site", "lockstep_list",
    "paths", "site_files", "url_list",
]  # fmt: skip
