"""Sites: what the servers serve, drawn deterministically from a seed.

`workloads/sites/<site>.yml` describes a site; `build` writes it, `manifest` lists every file with its
size, digest and weight, `url_list` turns the weights into the lines that a load tool walks through.
"""

from vmtoll.model.errors import SiteError
from vmtoll.model.site import Site
from vmtoll.sites.build import build, manifest
from vmtoll.sites.load import SITES_DIR, load_site
from vmtoll.sites.manifest import Manifest, ManifestFile, lockstep_list, url_list

__all__ = [
    "SITES_DIR", "Manifest", "ManifestFile", "Site", "SiteError", "build", "load_site", "lockstep_list", "manifest",
    "url_list",
]  # fmt: skip
