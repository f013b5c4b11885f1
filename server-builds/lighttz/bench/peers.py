"""The peers and how they are set up: static files, one worker, no log, no limit of requests per connection, sendfile
and a cache of open files or of their state where the documentation advises one.

Each has a command line and a configuration; {dir}, {root}, {port} and {conf} are filled in.
"""

from __future__ import annotations

from typing import NamedTuple

NGINX = """
worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log crit;
events {{ worker_connections 20000; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 75;
  open_file_cache max=4000 inactive=20s; open_file_cache_valid 1s;
  client_body_temp_path {dir}/t1; proxy_temp_path {dir}/t2; fastcgi_temp_path {dir}/t3;
  uwsgi_temp_path {dir}/t4; scgi_temp_path {dir}/t5;
  server {{ listen 127.0.0.1:{port} reuseport deferred; root {root}; }}
}}
"""
LIGHTTPD = """
server.document-root = "{root}"
server.bind = "127.0.0.1"
server.port = {port}
server.max-keep-alive-requests = 65535
server.max-fds = 20000
server.max-connections = 10000
server.max-worker = 0
server.network-backend = "sendfile"
server.stat-cache-engine = "simple"
server.errorlog = "{dir}/lighttpd.log"
"""
H2O = """
num-threads: 1
max-connections: 20000
user: root
error-log: {dir}/h2o.log
pid-file: {dir}/h2o.pid
hosts:
  default:
    listen: {{ host: 127.0.0.1, port: {port} }}
    paths: {{ "/": {{ file.dir: {root} }} }}
"""
APACHE = """
ServerRoot {dir}
ServerName bench
Listen 127.0.0.1:{port}
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
PidFile {dir}/apache.pid
ErrorLog {dir}/apache.log
User nobody
Group nogroup
DocumentRoot {root}
KeepAlive On
MaxKeepAliveRequests 0
StartServers 1
ServerLimit 4
ThreadsPerChild 64
MaxRequestWorkers 256
<Directory {root}>
  Require all granted
  AllowOverride None
</Directory>
EnableSendfile On
"""
CADDY = """
{{
  admin off
  auto_https off
  persist_config off
  log {{
    output discard
  }}
}}
http://127.0.0.1:{port} {{
  root * {root}
  file_server
}}
"""
# It serves no files: it keeps these as responses, which must fit into a buffer.
HAPROXY = """
global
  nbthread 1
  maxconn 9900
  tune.bufsize 131072
defaults
  mode http
  timeout client 75s
  timeout http-keep-alive 75s
  timeout connect 5s
  timeout server 5s
frontend static
  bind 127.0.0.1:{port} defer-accept
""" + "".join(
    "  http-request return status 200 content-type application/octet-stream"
    f" file {{root}}/{octets}.bin if {{{{ path /{octets}.bin }}}}\n"
    for octets in (357, 4096, 9216, 32768, 102400)
)
LIGHTTZ = """
listen = 127.0.0.1:{port}
root = {root}
workers = 1
user = 0
"""


class Peer(NamedTuple):
    name: str
    argv: list[str]
    config: str
    package: str = ""  # its version is this one's
    many_files: bool = True


PEERS = [
    Peer("nginx", ["nginx", "-c", "{conf}"], NGINX, "nginx-light"),
    Peer("lighttpd", ["lighttpd", "-D", "-f", "{conf}"], LIGHTTPD, "lighttpd"),
    Peer("h2o", ["h2o", "-c", "{conf}"], H2O, "h2o"),
    Peer("apache event", ["apache2", "-DFOREGROUND", "-f", "{conf}"], APACHE, "apache2"),
    Peer(
        "caddy",
        ["env", "GOMAXPROCS=1", "HOME={dir}", "caddy", "run", "--adapter", "caddyfile", "--config", "{conf}"],
        CADDY,
        "caddy",
    ),
    Peer("haproxy", ["haproxy", "-db", "-f", "{conf}"], HAPROXY, "haproxy", many_files=False),
    Peer("darkhttpd", ["darkhttpd", "{root}", "--port", "{port}", "--addr", "127.0.0.1"], ""),
]
