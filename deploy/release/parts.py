"""Writes what a release consists of: the licences of all crates in it, and a bill of materials in CycloneDX 1.5.

    cargo metadata --format-version 1 --locked --filter-platform TARGET | python parts.py FOLDER TORCH

into FOLDER/LICENCES.txt and FOLDER/sbom.cdx.json; TORCH is the version of the libtorch that it needs and does not have.
It fails where a crate has no text of its licence, and that is none of those whose text is known.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
import tomllib
import uuid
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent.parent

# The packages whose programs and libraries are released.
RELEASED = ["tradewind", "tradewind-bench", "tradewind-data", "tradewind-server", "tradewind-worker", "tradewind-python"]

# Names of files with licences, of the crate and of what it has from others, such as C sources.
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE|OFL|UFL)", re.IGNORECASE)
CODE = {".rs", ".c", ".h", ".py", ".toml", ".json", ".html", ".cmake", ".sh"}
TEXT_BYTES_MAX = 200_000

# What is no crate: name, version, SPDX licence, purl, and its licence's text.
VENDORED = [("uPlot", "1.6.32", "MIT", "pkg:npm/uplot@1.6.32", ROOT / "deploy/watch/src/page/uplot/LICENSE")]


def crates(metadata: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """All packages that the released ones are built from, by their ids, and what each depends on."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [key for key, package in packages.items() if package["name"] in RELEASED]
    if len(todo) != len(RELEASED):
        sys.exit(f"there are not all packages of {RELEASED}")
    needs: dict[str, list[str]] = {}
    while todo:
        key = todo.pop()
        if key in needs:
            continue
        # Not what only tests need.
        own = [need["pkg"] for need in nodes[key]["deps"] if any(kind["kind"] != "dev" for kind in need["dep_kinds"])]
        needs[key] = sorted(own)
        todo.extend(own)
    return {key: packages[key] for key in needs}, needs


def is_own(package: dict[str, Any]) -> bool:
    return package["source"] is None


def expression(package: dict[str, Any]) -> str | None:
    """Its licence in SPDX's words; old manifests have a slash for "or"."""
    licence: str | None = package["license"]
    return licence and re.sub(r"\s*/\s*", " OR ", licence)


def texts(package: dict[str, Any]) -> list[str]:
    """The licences in a crate's folder, with those of what it has from others."""
    folder = Path(package["manifest_path"]).parent
    files = [file for file in sorted(folder.rglob("*")) if TEXTS.match(file.name) and file.suffix not in CODE]
    if package["license_file"]:
        files.append(folder / package["license_file"])
    found = []
    for file in files:
        if file.is_file() and file.stat().st_size <= TEXT_BYTES_MAX:
            text = file.read_text(errors="replace").strip()
            if text and text not in found:
                found.append(text)
    return found


MIT = """MIT License

Copyright (c) {authors}

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation
files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy,
modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software
is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES
OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE
LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR
IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE."""


def standard(package: dict[str, Any]) -> str:
    """The text of a crate's licence where the crate has none in it: of those that it may be taken under, one."""
    allowed = (expression(package) or "").split(" OR ")
    if "Apache-2.0" in allowed:
        return (ROOT / "LICENSE").read_text().strip()
    if "MIT" in allowed:
        authors = ", ".join(package["authors"]) or f"the authors of {package['name']}"
        return MIT.format(authors=authors)
    sys.exit(f"{package['name']} has no text of its licence, {expression(package)}")


def licences(packages: list[dict[str, Any]]) -> str:
    """A list of all crates, then each text once, with those that have it."""
    listed, having = [], dict[str, list[str]]()
    for package in packages:
        name, licence = f"{package['name']} {package['version']}", expression(package)
        own = texts(package)
        listed.append(f"{name}: {licence or 'see its text'}" + ("" if own else "; its text is not in the crate"))
        for text in own or [standard(package)]:
            having.setdefault(text, []).append(name)
    for name, version, licence, _, text_file in VENDORED:
        listed.append(f"{name} {version}: {licence}")
        having.setdefault(text_file.read_text().strip(), []).append(f"{name} {version}")
    head = "What Tradewind is built from, with the licences of all of it. Tradewind itself is under Apache-2.0: LICENSE.\n"
    rule = "\n" + "=" * 100 + "\n"
    bodies = [f"{textwrap.fill(', '.join(names), 100)}\n\n{text}\n" for text, names in having.items()]
    return rule.join([head + "\n" + "\n".join(listed) + "\n", *bodies])


def purl(package: dict[str, Any]) -> str:
    return f"pkg:cargo/{package['name']}@{package['version']}"


def bill(packages: dict[str, Any], needs: dict[str, list[str]], torch: str) -> dict[str, Any]:
    """A bill of materials: crates with their checksums, what is no crate, and the libtorch that is needed."""
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(entry["name"], entry["version"]): entry.get("checksum") for entry in lock["package"]}
    components: list[dict[str, Any]] = []
    for package in packages.values():
        component: dict[str, Any] = {
            "type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"],
            "purl": purl(package),
        }  # fmt: skip
        licence = expression(package)
        component["licenses"] = [{"expression": licence}] if licence else [{"license": {"name": "see LICENCES.txt"}}]
        checksum = sums[package["name"], package["version"]]
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        components.append(component)
    for name, version, licence, where, _ in VENDORED:
        licensed = [{"license": {"id": licence}}]
        components.append(
            {"type": "library", "bom-ref": where, "name": name, "version": version, "purl": where, "licenses": licensed}
        )
    needed = f"pkg:pypi/torch@{torch}"
    components.append(
        {"type": "library", "bom-ref": needed, "name": "torch", "version": torch, "purl": needed, "scope": "excluded",
         "description": "libtorch, which the worker needs where it runs"}
    )  # fmt: skip
    components.sort(key=lambda component: str(component["bom-ref"]))
    version = next(package["version"] for package in packages.values() if package["name"] == "tradewind")
    whole = f"pkg:generic/tradewind@{version}"
    roots = [purl(package) for package in packages.values() if package["name"] in RELEASED]
    dependencies = [{"ref": whole, "dependsOn": sorted([*roots, needed, *(entry[3] for entry in VENDORED)])}]
    for key, package in packages.items():
        dependencies.append({"ref": purl(package), "dependsOn": sorted({purl(packages[need]) for need in needs[key]})})
    # The same parts have the same number.
    number = uuid.uuid5(uuid.NAMESPACE_URL, whole + json.dumps(components))
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{number}", "version": 1,
        "metadata": {
            "component": {
                "type": "application", "bom-ref": whole, "name": "tradewind", "version": version, "purl": whole,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components, "dependencies": dependencies,
    }  # fmt: skip


def main() -> None:
    folder, torch = Path(sys.argv[1]), sys.argv[2]
    packages, needs = crates(json.load(sys.stdin))
    ordered = sorted(packages.values(), key=lambda package: (package["name"], package["version"]))
    others = [package for package in ordered if not is_own(package)]
    (folder / "LICENCES.txt").write_text(licences(others))
    (folder / "sbom.cdx.json").write_text(json.dumps(bill(packages, needs, torch), indent=1) + "\n")
    print(f"{len(others)} crates of others: licences and bill of materials are in {folder}")


if __name__ == "__main__":
    main()
