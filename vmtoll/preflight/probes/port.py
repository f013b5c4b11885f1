"""Usage: port.py PORT — prints why a server could not listen on this port; an empty string if it could."""

import json
import socket
import sys

with socket.socket() as probe:
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("", int(sys.argv[1])))
        print(json.dumps(""))
    except OSError as error:
        print(json.dumps(error.strerror))
