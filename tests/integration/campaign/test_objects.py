"""A dataset on object storage: a real server of S3's protocol (moto's), and a job that writes there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.integration.campaign.test_campaign import Hosts, write_inventory
from tests.integration.campaign.test_campaign import small as small  # noqa: PLC0414
from tests.integration.campaign.test_campaign import two_testbeds as two_testbeds  # noqa: PLC0414
from tests.integration.campaign.test_jobs import job
from vmtoll.campaign.objects import Bucket, location
from vmtoll.campaign.store import partition
from vmtoll.model.errors import UserError
from vmtoll.spec.catalog import Registry


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a server with the bucket `lab`."""
    import boto3  # noqa: PLC0415 (seconds)
    from moto.server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    variables = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_MAX_ATTEMPTS": "1",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3")
    client.create_bucket(Bucket="lab")
    yield client
    client.close()
    server.stop()


def objects(client: Any) -> dict[str, bytes]:
    listing = client.list_objects_v2(Bucket="lab").get("Contents", ())
    return {entry["Key"]: client.get_object(Bucket="lab", Key=entry["Key"])["Body"].read() for entry in listing}


def test_a_job_writes_its_run_there_once(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path, client: Any
) -> None:
    """The same bytes as in a folder; a second job finds them, also on a machine that has no folder of the first."""
    path, folder = write_inventory(tmp_path / "beds.yml", two_testbeds), tmp_path / "spring"
    campaign = job(small, path, folder, "cell_a")
    campaign.dataset = location("s3://lab/data/")
    assert campaign.measure() == 0
    (run,) = (folder / "jobs/cell_a/testbeds/cell_a/tiny").glob("*Z-*")
    files = partition(run, tmp_path / "data", "spring", "cell_a")
    written = objects(client)
    assert written == {str(file.relative_to(tmp_path)): file.read_bytes() for file in files}
    for name in ("spring", "elsewhere"):
        again = job(small, path, tmp_path / name, "cell_a")
        again.dataset = location("s3://lab/data")
        assert again.measure() == 0
        assert list((tmp_path / name / "jobs/cell_a/testbeds/cell_a").glob("tiny/*Z-*")) == [run] * (name == "spring")
    assert objects(client) == written


@pytest.mark.parametrize("url", ["s3://no-such-bucket/data", "s3://lab/data"])
def test_a_bucket_that_cannot_be_written_costs_no_measurement(
    small: Registry, two_testbeds: dict[str, Hosts], tmp_path: Path, client: Any, url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """It does not exist, or its endpoint does not answer."""
    if "lab" in url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    path, folder = write_inventory(tmp_path / "beds.yml", two_testbeds), tmp_path / "spring"
    campaign = job(small, path, folder, "cell_a")
    campaign.dataset = location(url)
    with pytest.raises(UserError, match=rf"^{url}: .*; .*bucket, endpoint \(AWS_ENDPOINT_URL\) and credentials"):
        campaign.measure()
    assert not list(folder.rglob("trials.jsonl"))
    assert objects(client) == {}


def test_an_address_that_is_no_bucket() -> None:
    with pytest.raises(UserError, match="give s3://BUCKET"):
        Bucket("s3:///data")
    assert location("data/here") == Path("data/here")
