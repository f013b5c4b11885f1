"""A small root file system with nginx and a page, as provisioning leaves a large one."""

import json
import re
import shutil
import subprocess
from pathlib import Path

_PROGRAMS = ("/usr/sbin/nginx", "/usr/bin/env", "/bin/sh", "/bin/true")
_CONFIGURATION = """daemon off; user www-data; pid /run/vmtoll-nginx/pid; error_log stderr error;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path /run/vmtoll-nginx/a; proxy_temp_path /run/vmtoll-nginx/b;
    fastcgi_temp_path /run/vmtoll-nginx/c; uwsgi_temp_path /run/vmtoll-nginx/d; scgi_temp_path /run/vmtoll-nginx/e;
    server {{ listen {port}; root /srv/vmtoll/sites; }}
}}
"""


def make(folder: Path, port: int) -> Path:
    """A root file system whose servers are `nginx`, and `busy`: nginx with a process that uses a whole CPU."""
    for name in ("etc/vmtoll/servers", "proc", "sys", "dev", "run", "tmp", "var/log", "srv/vmtoll/sites/pages"):
        (folder / name).mkdir(parents=True)
    for program in _PROGRAMS:
        linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for file in (program, *re.findall(r"(/lib\S+)", linked)):
            copy = folder / file.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    for file in ("/etc/passwd", "/etc/group", "/etc/os-release"):
        shutil.copy(file, folder / "etc")
    (folder / "etc/nginx.conf").write_text(_CONFIGURATION.format(port=port))
    (folder / "srv/vmtoll/sites/pages/page.html").write_text("<p>a page</p>\n" * 300)
    nginx = ["/usr/sbin/nginx", "-c", "/etc/nginx.conf"]
    busy = ["/bin/sh", "-c", f"while :; do :; done & exec {' '.join(nginx)}"]
    for name, argv in (("nginx", nginx), ("busy", busy)):
        description: dict[str, object] = {
            "name": "nginx", "argv": argv, "user": None, "environment": {}, "binary": "/usr/sbin/nginx",
            "configs": ["/etc/nginx.conf"], "port": port, "ports": [port], "workers": 1, "packages": [],
        }  # fmt: skip
        (folder / f"etc/vmtoll/servers/{name}.json").write_text(json.dumps(description))
    return folder
