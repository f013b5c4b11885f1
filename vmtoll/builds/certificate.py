"""The lab's one certificate: made once on the controller, by openssl, the same on every machine under test."""

from pathlib import Path

from vmtoll.shell import run

# On the machines under test. Servers read the key as root, or as a member of this group.
CERTIFICATE, KEY = "/etc/vmtoll/tls/certificate.pem", "/etc/vmtoll/tls/key.pem"
GROUP = "www-data"
_DAYS = 3650


def files(cache: Path) -> dict[str, tuple[bytes, int]]:
    """Return {path on the SUT: (content, mode)} of certificate and key: ECDSA on P-256, self-signed.

    Creates them once, in `cache`. Raises UserError when openssl fails.
    """
    folder = cache / "tls"
    paths = {name: folder / Path(name).name for name in (CERTIFICATE, KEY)}
    if not all(path.exists() for path in paths.values()):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make(paths[CERTIFICATE], paths[KEY], cache / "logs" / "certificate.log")
    return {CERTIFICATE: (paths[CERTIFICATE].read_bytes(), 0o644), KEY: (paths[KEY].read_bytes(), 0o640)}


def _make(certificate: Path, key: Path, log: Path) -> None:
    """Write both; rename the certificate last, so that an interrupted build starts over."""
    partial = certificate.with_suffix(".partial")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=vmtoll", "-addext", "subjectAltName=DNS:vmtoll"]
    run(["openssl", "req", "-x509", *curve, "-days", str(_DAYS), *names, "-keyout", key, "-out", partial], log=log)
    partial.rename(certificate)
