"""Hashes of everything that `make setup` installs, as pip reports them: `pip install --dry-run --report - … | lock.py`.

Lines are what `pip install --require-hashes` wants. Hosts and paths stay out: a hash says which file, not from where.
"""

import json
import platform
import sys

SYSTEM = f"Python {sys.version_info.major}.{sys.version_info.minor} on {platform.system()} {platform.machine()}"
HEADER = f"""\
# Made by `make lock` for {SYSTEM}; other systems need other files: run it there.
# A build of torch such as 2.13.0+cpu is not on PyPI but on torch's own index.
# Check that what an index serves is this: make check-lock
"""


def lines(report):
    """name==version --hash=sha256:…, sorted, without the package itself."""
    for entry in sorted(report["install"], key=lambda entry: entry["metadata"]["name"].lower()):
        if "dir_info" not in entry["download_info"]:
            found = entry["metadata"], entry["download_info"]["archive_info"]["hashes"]["sha256"]
            yield f"{found[0]['name']}=={found[0]['version']} --hash=sha256:{found[1]}"


if __name__ == "__main__":
    print(HEADER + "\n".join(lines(json.load(sys.stdin))))
