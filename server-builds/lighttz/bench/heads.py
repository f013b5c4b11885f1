"""The request heads that the bench sends: field lines without the request line."""

BENCH = ["Host: bench"]
SIEGE = [
    "Host: 127.0.0.1:18301",
    "Accept: */*",
    "Accept-Encoding: gzip, deflate",
    "User-Agent: Mozilla/5.0 (x86_64-pc-linux-gnu) Siege/4.0.7",
    "Connection: keep-alive",
]
CHROME = [
    "Host: 127.0.0.1:18301",
    "Connection: keep-alive",
    "Cache-Control: max-age=0",
    'sec-ch-ua: "Not A(Brand";v="8", "Chromium";v="132", "Google Chrome";v="132"',
    "sec-ch-ua-mobile: ?0",
    'sec-ch-ua-platform: "Linux"',
    "Upgrade-Insecure-Requests: 1",
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/132.0.0.0 Safari/537.36",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    "application/signed-exchange;v=b3;q=0.7",
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-User: ?1",
    "Sec-Fetch-Dest: document",
    "Referer: http://127.0.0.1:18301/index.html",
    "Accept-Encoding: gzip, deflate, br, zstd",
    "Accept-Language: en-US,en;q=0.9",
]
HEADS = {
    name: "".join(line + "\r\n" for line in lines)
    for name, lines in {"bench": BENCH, "siege": SIEGE, "chrome": CHROME}.items()
}
