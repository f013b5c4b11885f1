"""Sites: what the servers serve, drawn deterministically from a seed.

`workloads/sites/<site>.yml` describes a site; `build` writes it, `manifest` names every file with its
size, digest and weight, `url_list` turns the weights into the lines a load tool walks through.
"""

from workloads.sites.build import build, manifest
from workloads.sites.manifest import Manifest, ManifestFile, lockstep_list, url_list
from workloads.sites.model import SITES_DIR, Site, SiteError, load_site

__all__ = [
    "SITES_DIR",
    "Manifest",
    "ManifestFile",
    "Site",
    "SiteError",
    "build",
    "load_site",
    "lockstep_list",
    "manifest",
    "url_list",
]
