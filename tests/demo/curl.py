"""As much of curl as the commands of `retrysafe demo --serve` use, for machines without curl.

python curl.py [-i] [-s] URL [-H HEADER]… [-d BODY]
"""

import http.client
import sys
from argparse import ArgumentParser
from urllib.parse import urlsplit


def main() -> int:
    parser = ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-i", action="store_true")
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    options = parser.parse_args()
    url = urlsplit(options.url)
    headers = dict(header.split(": ", 1) for header in options.H)
    if options.d is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
    connection = http.client.HTTPConnection(url.hostname or "", url.port)
    try:
        connection.request("GET" if options.d is None else "POST", url.path, options.d, headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException):
        return 52  # curl's exit code for an empty response
    if options.i:
        sys.stdout.write(f"HTTP/1.0 {response.status} {response.reason}\n")
        sys.stdout.writelines(f"{name}: {value}\n" for name, value in response.getheaders())
        sys.stdout.write("\n")
    sys.stdout.write(body.decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
