#!/usr/bin/env python3
"""The SBOM of the relocatable folder: SPDX 2.3 JSON of millrace and the libraries copied from Debian.

usage: sbom.py FOLDER VERSION EPOCH LIST     writes FOLDER/share/doc/millrace/millrace.spdx.json
       sbom.py --check FOLDER                exit status 1 if fields are missing or checksums differ

LIST has a line for each library: file in lib/, package, version.
"""
import datetime
import hashlib
import json
import re
import sys
from pathlib import Path

PLACE = "share/doc/millrace/millrace.spdx.json"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def licence(folder, soname):
    """What the copyright file states in SPDX's own names; a list of Debian's is kept as a comment."""
    text = (folder / f"share/doc/millrace/licences/{soname}.txt").read_text(errors="replace")
    return sorted(set(re.findall(r"^License: *(\S.*)$", text, re.M)))


def package(folder, name, version, supplier, path, declared, comment):
    entry = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", path.name), "name": name,
        "versionInfo": version, "supplier": supplier, "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": declared,
        "copyrightText": "NOASSERTION", "packageFileName": str(path.relative_to(folder)),
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(path)}]}
    if comment:
        entry["licenseComments"] = "In Debian's copyright file: " + "; ".join(comment)
    return entry


def write(folder, version, epoch, listed):
    main = package(folder, "millrace", version, "NOASSERTION", folder / "lib/libmillrace.so",
                   "Apache-2.0", None)
    packages = [main]
    for line in sorted(Path(listed).read_text().splitlines()):
        soname, name, of = line.split()
        packages.append(package(folder, name, of, "Organization: Debian", folder / "lib" / soname,
                                "NOASSERTION", licence(folder, soname)))
    sums = hashlib.sha256("".join(p["checksums"][0]["checksumValue"] for p in packages).encode())
    created = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc)
    document = {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"millrace-{version}",
        "documentNamespace": f"urn:millrace:spdx:{version}:{sums.hexdigest()}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: millrace-scripts-sbom.py"]},
        "packages": packages,
        "relationships": [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES",
                           "relatedSpdxElement": main["SPDXID"]}] + [
            {"spdxElementId": main["SPDXID"], "relationshipType": "DEPENDS_ON",
             "relatedSpdxElement": p["SPDXID"]} for p in packages[1:]]}
    (folder / PLACE).write_text(json.dumps(document, indent=1) + "\n")


def faults(folder):
    document = json.loads((folder / PLACE).read_text())
    for key in ("dataLicense", "SPDXID", "name", "documentNamespace", "creationInfo", "packages"):
        if not document.get(key):
            yield f"the document has no {key}"
    if document.get("spdxVersion") != "SPDX-2.3":
        yield "spdxVersion is not SPDX-2.3"
    ids, listed = {"SPDXRef-DOCUMENT"}, set()
    for p in document.get("packages", []):
        for key in ("SPDXID", "name", "versionInfo", "supplier", "downloadLocation",
                    "licenseDeclared", "packageFileName", "checksums"):
            if not p.get(key):
                yield f"package {p.get('name')} has no {key}"
        if p.get("SPDXID") in ids:
            yield f"{p['SPDXID']} twice"
        ids.add(p.get("SPDXID"))
        path = folder / p.get("packageFileName", "")
        listed.add(path.name)
        if not path.is_file() or sha256(path) != p["checksums"][0]["checksumValue"]:
            yield f"{path}: missing, or another checksum"
    for r in document.get("relationships", []):
        if not {r["spdxElementId"], r["relatedSpdxElement"]} <= ids:
            yield f"a relationship names an unknown element: {r}"
    for path in (folder / "lib").glob("lib*.so.*"):
        if not path.name.startswith("libmillrace") and path.name not in listed:
            yield f"{path.name} is not listed"


if __name__ == "__main__":
    if len(sys.argv) != (3 if sys.argv[1:2] == ["--check"] else 5):
        print("usage: scripts/sbom.py FOLDER VERSION EPOCH LIST | --check FOLDER", file=sys.stderr)
        sys.exit(2)
    if sys.argv[1] == "--check":
        found = list(faults(Path(sys.argv[2])))
        print("\n".join(found) or "sbom: complete")
        sys.exit(bool(found))
    write(Path(sys.argv[1]), *sys.argv[2:5])
