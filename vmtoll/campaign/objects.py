"""A dataset on object storage that speaks S3's protocol, by boto3: files are put whole, and counted by their keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vmtoll.model.errors import UserError

SCHEME = "s3://"


class Bucket:
    """A folder of a bucket. Endpoint and credentials are those of AWS's variables and files, as boto3 reads them."""

    def __init__(self, url: str) -> None:
        """Take the address `s3://bucket/folder`. Raises UserError for another one, or without boto3."""
        parts = urlsplit(url)
        if parts.scheme != "s3" or not parts.netloc:
            raise UserError(f"{url}: give s3://BUCKET or s3://BUCKET/FOLDER")
        try:
            import boto3  # noqa: PLC0415 (an extra, and slow)
        except ModuleNotFoundError:
            raise UserError(f"{url}: object storage needs boto3; install vmtoll with the extra s3") from None
        self.url = url.rstrip("/")
        self.bucket, self.prefix = parts.netloc, parts.path.strip("/")
        self.client: Any = boto3.client("s3")

    def __str__(self) -> str:
        return self.url

    def check(self) -> None:
        """Put an empty object and delete it. Raises UserError if the bucket is not there or cannot be written."""
        key = self._key(".vmtoll-check")
        with self._errors():
            self.client.put_object(Bucket=self.bucket, Key=key, Body=b"")
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def has(self, name: str) -> bool:
        """Return whether there is a file of this name. Raises UserError."""
        return self._key(name) in self.keys(name)

    def put(self, file: Path, name: str) -> None:
        """Put a file: others see all of it, or none. Raises UserError."""
        with self._errors():
            self.client.upload_file(str(file), self.bucket, self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}" if self.prefix else name

    def keys(self, beginning: str) -> Iterator[str]:
        """The keys of all objects whose names begin so. Raises UserError."""
        with self._errors():
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self._key(beginning)
            )
            for page in pages:
                yield from (entry["Key"] for entry in page.get("Contents", ()))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise UserError in place of boto3's errors, in one sentence."""
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            yield
        except (Boto3Error, BotoCoreError, ClientError) as error:
            words = " ".join(str(error).split()).rstrip(".")
            raise UserError(
                f"{self.url}: {words}; check bucket, endpoint (AWS_ENDPOINT_URL) and credentials"
            ) from error


Location = Path | Bucket


def location(dataset: str) -> Location:
    """The place of a dataset: a folder, or on object storage. Raises UserError."""
    return Bucket(dataset) if dataset.startswith(SCHEME) else Path(dataset)
