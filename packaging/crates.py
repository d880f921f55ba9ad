"""The crates that a binary of the workspace links, as cargo resolves them.

Used for the licences of the dependencies and for the bill of materials, so that both name the same.
"""

import json
import re
import subprocess
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
# What the packaged program is built with, beside the default.
FEATURES = (ROOT / "packaging/features").read_text().strip()
# Crates whose build script compiles C code into the binary: where its licence is, and how its version is found.
C_CODE = {
    "rdkafka-sys": ("librdkafka", "librdkafka/LICENSES.txt", "BSD-2-Clause", r"\+(.*)"),
    "openssl-src": ("openssl", "openssl/LICENSE.txt", "Apache-2.0", r"\+(.*)"),
    "libz-sys": ("zlib", "src/zlib/LICENSE", "Zlib", None),
    "zstd-sys": ("zstd", "zstd/LICENSE", "BSD-3-Clause", r"zstd\.(.*)"),
    "tikv-jemalloc-sys": ("jemalloc", "jemalloc/COPYING", "BSD-2-Clause", r"\+([0-9.]+)"),
    "libmimalloc-sys": ("mimalloc", "c_src/mimalloc/LICENSE", "MIT", None),
}
# Of crates that compile C code whose version is in a header only.
HEADERS = {
    "zlib": ("src/zlib/zlib.h", r'#define ZLIB_VERSION "([^"]+)"'),
    "mimalloc": ("c_src/mimalloc/include/mimalloc.h", r"#define MI_MALLOC_VERSION (\d+)"),
}


@dataclass
class Crate:
    name: str
    version: str
    licence: str
    folder: Path
    repository: str
    sha256: str
    needs: set = field(default_factory=set)

    @property
    def key(self):
        return (self.name, self.version)

    def c_code(self):
        """Name, version and licence of the C code that it brings, or None."""
        if self.name not in C_CODE:
            return None
        name, _, licence, pattern = C_CODE[self.name]
        if pattern:
            found = re.search(pattern, self.version)
        else:
            header, pattern = HEADERS[name]
            found = re.search(pattern, (self.folder / header).read_text(errors="replace"))
        return (name, found.group(1), licence)


def cargo(*words):
    command = ["cargo", *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def linked(packages):
    """All crates that the packaged binaries of these packages link, by name and version; the packages too."""
    about = json.loads(cargo("metadata", "--format-version", "1", "--locked", "--all-features"))
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    sums = {(it["name"], it["version"]): it.get("checksum", "") for it in lock["package"]}
    known = {}
    for it in about["packages"]:
        folder = Path(it["manifest_path"]).parent
        # Older manifests write a slash for "or".
        licence = (it["license"] or "").replace("/", " OR ").replace("  ", " ")
        crate = Crate(it["name"], it["version"], licence, folder, it["repository"] or "", sums[(it["name"], it["version"])])
        known[crate.key] = crate
    chosen = [word for name in packages for word in ("--package", name)]
    # Build scripts and macros run at build time and are not linked, but openssl-src is: what it builds is.
    edges = ("normal,no-proc-macro", "normal,build,no-proc-macro")
    result = {}
    for kinds in edges:
        stack = []
        listing = cargo("tree", "--locked", "--target", TARGET, "--edges", kinds, "--prefix", "depth",
                        "--features", FEATURES, *chosen, "--format", " {p}")
        for line in listing.splitlines():
            found = re.match(r"(\d+) (\S+) v(\S+)", line)
            if not found:
                continue
            depth, key = int(found[1]), (found[2], found[3])
            del stack[depth:]
            stack.append(key)
            is_linked = kinds == edges[0] or key[0] == "openssl-src"
            if is_linked:
                result.setdefault(key, known[key])
                if depth and stack[-2] in result:
                    result[stack[-2]].needs.add(key)
    return dict(sorted(result.items()))
