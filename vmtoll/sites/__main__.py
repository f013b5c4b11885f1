"""python -m vmtoll.sites SITE OUTDIR — write a site and its manifest."""

import argparse
import sys
from pathlib import Path

from vmtoll import search_path
from vmtoll.model.errors import SiteError
from vmtoll.sites.build import build


def main() -> int:
    found = search_path.sites()
    names = found.names()
    parser = argparse.ArgumentParser(prog="python -m vmtoll.sites", description=__doc__)
    parser.add_argument("site", help=f"one of: {', '.join(names)}, or the path of a site's YAML")
    parser.add_argument("outdir", type=Path)
    args = parser.parse_args()
    path = Path(args.site) if args.site.endswith(".yml") else found.find(args.site)
    if not path.is_file():
        parser.error(f"no site {args.site!r}; there are: {', '.join(names)}")
    try:
        site_files = build(path, args.outdir)
    except (SiteError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    total = sum(f["size_bytes"] for f in site_files["files"])
    print(f"{site_files['site']}: {len(site_files['files'])} files, {total} bytes, digest {site_files['digest'][:16]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
