"""What is made once on the controller and goes to the machines: servers, site content, load tools."""

import tarfile
from pathlib import Path
from typing import Any

from vmtoll import servers, tools
from vmtoll.paths import CACHE
from workloads import sites


def site_archives() -> list[dict[str, str]]:
    """Generate each site and pack it; return [{name, digest, archive}], one entry a site.

    The archive holds `<name>/`, `<name>.manifest.json` and an empty `.<name>-<digest>` that marks it as unpacked.
    """
    return [_archive(description) for description in sorted(sites.SITES_DIR.glob("*.yml"))]


def _archive(description: Path) -> dict[str, str]:
    folder = CACHE / "sites" / description.stem
    manifest = sites.build(description, folder)
    name, digest = manifest["site"], manifest["digest"][:16]
    archive = CACHE / "sites" / f"{name}-{digest}.tar"
    marker = folder / f".{name}-{digest}"
    for stale in folder.glob(f".{name}-*"):
        stale.unlink()
    marker.touch()
    partial = archive.with_suffix(".partial")
    with tarfile.open(partial, "w") as tar:
        for entry in (name, f"{name}.manifest.json", marker.name):
            tar.add(folder / entry, arcname=entry)
    partial.rename(archive)
    return {"name": name, "digest": digest, "archive": str(archive)}


def variables(policy: servers.Policy) -> dict[str, Any]:
    """Return the extra variables that site.yml needs."""
    return {
        "web_servers_list": servers.catalog(),
        "web_servers_archive": str(servers.archive(policy)),
        "site_content_sites": site_archives(),
        "load_tools_binaries": tools.binaries(),
    }
