"""libvirt's schemas: the checks of virt-xml-validate, for many files at once."""

import re
import subprocess
from pathlib import Path

INSTALLED = Path("/usr/share/libvirt/schemas")


def invalid(files, schema, schemas=INSTALLED):
    """{path: first reason} of the files that are not valid by a schema."""
    found = {}
    for at in range(0, len(files), 500):
        part = [str(file) for file in files[at : at + 500]]
        argv = ["xmllint", "--noout", "--relaxng", str(schemas / f"{schema}.rng"), *part]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        for path in re.findall(r"^(.*) fails to validate$", done.stderr, re.M):
            hit = re.search(rf"^{re.escape(path)}:\d+: .*?error : (.*)$", done.stderr, re.M)
            found[path] = hit.group(1) if hit else "does not validate"
        said = len(re.findall(r" (?:validates|fails to validate)$", done.stderr, re.M))
        if said != len(part):
            raise RuntimeError(f"xmllint: {done.stderr.strip().splitlines()[-1]}")
    return found
