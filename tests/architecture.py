#!/usr/bin/env python3
"""Checks that data goes one way: no file includes upwards. Plain Python, no packages.

python3 tests/architecture.py              check the repository
python3 tests/architecture.py --self-test  show that every rule catches a file that breaks it
"""

import fnmatch
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Lowest first. A file may include its own stem, whatever is on a lower line, and on its own line what stands
# to the left of it. A pattern with * is one place: files that match it may include each other;
# so are patterns joined by | (a context owns its executor, which reports to it).
ORDER = """
    include/quire/quire
    src/half src/status src/blocks src/token_blocks src/format src/target src/dropout src/rotation
    jit/lines_ahead jit/args jit/code_memory jit/notes jit/code_cache jit/vtune jit/perf jit/zydis \
        jit/listing jit/emitter* jit/steps jit/math jit/bfloat_exp2 jit/row_loader* jit/word_loader \
        jit/byte_loader jit/kernel_key jit/row_list jit/prefetch jit/amx jit/scaled_amx jit/upper_nibbles \
        jit/scales jit/token_prefetch jit/token_codes jit/token_keys jit/turned_keys \
        jit/token_qk_bytes|jit/token_qk_turns|jit/token_qk_groups jit/token_qk_amx* jit/token_qk \
        jit/qk* jit/query* jit/softmax* \
        jit/weights* jit/minima jit/pv* \
        jit/rotate jit/quantise|jit/append jit/tile_ahead jit/pack* \
        jit/tile* jit/token* jit/merge jit/scale_row jit/kernels*
    src/tensors src/cache_view src/problem* src/portable src/select src/precision* src/plan src/schedule \
        src/combine src/transpose src/cache_memory src/attend*|src/token_rows src/append* src/copy src/read \
        src/dense src/project src/cost src/diagnostics src/ordered src/arena src/execute|src/context
    src/ops/*
    src/api_calls src/api*
"""

UNPLACED = "which is not in ORDER of tests/architecture.py; place it there"

# Users of the library see its public header and their own files, nothing else of the repository.
PUBLIC_ONLY = ("bench/", "examples/", "integrations/", "python/")

# One file knows oneTBB; tests may use it as a caller's own thread pool.
TBB_INCLUDE = re.compile(r"(oneapi/)?tbb[/.]")
TBB_FILES = ("src/arena.cc", "src/execute.cc")

# One file knows oneDNN, and the OpenMP that it may be built with.
ONEDNN_INCLUDE = re.compile(r"(oneapi/dnnl/|dnnl|omp\.h)")
ONEDNN_FILE = "src/dense.cc"

# One file knows Zydis; tests decode with it too.
ZYDIS_INCLUDE = re.compile(r"Z(ydis|ycore)/")
ZYDIS_FILE = "jit/zydis.cc"

# Only the emitter (and the table of targets) may tell AVX2 from AVX-512.
ISA_TEST = re.compile(r"\b(is_zmm|is_ymm|is_avx512|is_avx2|has_avx512\w*|isZMM|isYMM|getKind|tAVX512\w*)\b")
ISA_FILES = ("jit/emitter*", "src/target*", "bench/limits*", "tests/*")

# A path of somebody's machine.
MACHINE_PATH = re.compile(r"(?<![\w.$}~])/(?:work|root|home)/")

LINES_REPORTED, LINES_ALLOWED = 400, 600

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">]+)[">]', re.MULTILINE)
CODE = (".cc", ".h", ".c", ".py")


def places():
    """(line, column, pattern) of every entry of ORDER."""
    lines = [line.split() for line in ORDER.strip().splitlines()]
    return [(i, j, pattern) for i, line in enumerate(lines) for j, pattern in enumerate(line)]


def place_of(path):
    """(line, column) of a file in ORDER, or None. A name without * wins over a pattern."""
    stem = re.sub(r"\.\w+$", "", path)
    matches = [p for p in places() if any(fnmatch.fnmatchcase(stem, part) for part in p[2].split("|"))]
    matches.sort(key=lambda p: "*" in p[2])
    return matches[0][:2] if matches else None


def includes_of(text):
    """Repository paths and other headers a file includes, as written, comments left out."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.DOTALL)
    return [(text.count("\n", 0, m.start()) + 1, m.group(2)) for m in INCLUDE.finditer(text)]


def repository_path(header):
    """Path from the root of a header as written in #include, or None where it is not of this repository."""
    if header == "quire/quire.h":
        return "include/quire/quire.h"
    return header if header.split("/")[0] in ("src", "jit", "include") else None


def check_order(path, text):
    if not path.startswith(("include/", "src/", "jit/")):
        return
    place = place_of(path)
    if place is None:
        yield f"{path}: {UNPLACED}"
        return
    for number, header in includes_of(text):
        target = repository_path(header)
        if target is None:
            if "/" not in header and Path(ROOT, Path(path).parent, header).exists():
                yield f'{path}:{number}: includes "{header}": write the path from the root of the repository'
            continue
        below = place_of(target)
        if below is None:
            yield f"{path}:{number}: includes {target}, {UNPLACED}"
        elif below > place:
            yield f"{path}:{number}: includes {target}, which stands above it in ORDER of this test"


def check_public_only(path, text):
    if path.startswith(PUBLIC_ONLY):
        for number, header in includes_of(text):
            if header.startswith(("src/", "jit/")):
                yield f"{path}:{number}: includes {header}; here only the public header may be used"


def check_tbb(path, text):
    if path not in TBB_FILES and not path.startswith("tests/"):
        for number, header in includes_of(text):
            if TBB_INCLUDE.match(header):
                yield f"{path}:{number}: includes {header}; only {' and '.join(TBB_FILES)} may know oneTBB"


def check_onednn(path, text):
    if path != ONEDNN_FILE:
        for number, header in includes_of(text):
            if ONEDNN_INCLUDE.match(header):
                yield f"{path}:{number}: includes {header}; only {ONEDNN_FILE} may know oneDNN"


def check_zydis(path, text):
    if path != ZYDIS_FILE and not path.startswith("tests/"):
        for number, header in includes_of(text):
            if ZYDIS_INCLUDE.match(header):
                yield f"{path}:{number}: includes {header}; only {ZYDIS_FILE} may know Zydis"


def check_isa_tests(path, text):
    if any(fnmatch.fnmatchcase(path, pattern) for pattern in ISA_FILES):
        return
    for number, line in enumerate(text.splitlines(), 1):
        found = ISA_TEST.search(line)
        if found and not line.lstrip().startswith("//"):
            yield f"{path}:{number}: {found.group()}: only jit/emitter may tell AVX2 from AVX-512"


def check_machine_paths(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        found = MACHINE_PATH.search(line)
        if found:
            yield f"{path}:{number}: a machine's path: {line[found.start() :][:40]}"


def check_length(path, text):
    if path.startswith("include/"):  # the header is also the manual
        return
    lines = text.count("\n")
    if lines > LINES_ALLOWED:
        yield f"{path}: {lines} lines; more than {LINES_ALLOWED} are not allowed"


# docs/operators.md names tests in backquotes: `test_file.py::test_name` of tests/python, `Suite.Name` of C++.
OPERATORS_PAGE, FEATURES = "docs/operators.md", "## Features"
NAMED_TEST = re.compile(r"`(?:tests/python/)?(test_\w+\.py::test_\w+|[A-Z]\w*\.[A-Z]\w*)`")
TEST_IN_CXX = re.compile(r"^(?:TEST|TEST_P|TEST_F|QUIRE_PROPERTY)\((\w+), (\w+)[,)]", re.MULTILINE)
NO_FEATURE = "\N{EN DASH}"


@functools.cache
def all_tests():
    """Every test there is, by the name that the page of operators gives it."""
    found = set()
    for path in (ROOT / "tests/python").glob("test_*.py"):
        found |= {
            f"{path.name}::{name}" for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
        }
    for path in (ROOT / "tests").glob("*.cc"):
        found |= {".".join(name) for name in TEST_IN_CXX.findall(path.read_text())}
    return found


def check_named_tests(path, text):
    """Tests that the page names exist; a cell of its tables of features names one, or says it has none."""
    if path != OPERATORS_PAGE:
        return
    of_features, row = False, 0
    for number, line in enumerate(text.splitlines(), 1):
        for name in NAMED_TEST.findall(line):
            if name not in all_tests():
                yield f"{path}:{number}: names the test {name}, which does not exist"
        if line.startswith("#"):
            of_features = line == FEATURES
        row = row + 1 if line.startswith("|") else 0
        if of_features and row > 2:  # below the headings
            feature, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            for cell in cells:
                if cell != NO_FEATURE and not NAMED_TEST.search(cell):
                    yield f"{path}:{number}:{feature}: a cell names no test: {cell!r}"


# Sources and documents quote a passage by its title, after the name of this page, which lists them all.
PASSAGES_PAGE = "docs/performance.md"
QUOTED = re.compile(r'performance\.md\)?,((?:(?:,| and)? "[^"]+")+)')
PASSAGE = re.compile(r"^ *- (?:\[(.+)\]\((\S+)\)|(.+))$", re.MULTILINE)
LINK = re.compile(r"\]\(([^):\s]+)\)")


@functools.cache
def passages():
    """Titles that the page lists."""
    listed = PASSAGE.findall((ROOT / PASSAGES_PAGE).read_text(encoding="utf-8"))
    return [linked or plain for linked, _, plain in listed]


@functools.cache
def anchors(path):
    """What links to a heading of a document end with."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_passages(path, text):
    """What the page lists is a heading of the page it stands under, or begins a paragraph there."""
    if path != PASSAGES_PAGE:
        return
    page = ""
    for title, link, plain in PASSAGE.findall(text):
        if link and "#" not in link:
            page = (ROOT / path).parent.joinpath(link).read_text(encoding="utf-8")
        lead = rf"^(?:#+ {re.escape(title)}$|\*\*{re.escape(plain)}\.?\*\*)"
        if not re.search(lead, page, re.MULTILINE):
            yield f"{path}: lists {title or plain!r}, which is not on its page"


def check_quoted_passages(path, text):
    if path.startswith("tests/"):
        return
    text = re.sub(r"\n\s*(?:(?://|#|\*) *)?", " ", text)
    for titles in QUOTED.findall(text):
        for title in re.findall(r'"([^"]+)"', titles):
            if not any(passage.startswith(title) for passage in passages()):
                yield f"{path}: quotes {title!r}, which {PASSAGES_PAGE} does not list"


def check_links(path, text):
    """Links of documents to files of the repository."""
    if not path.endswith(".md"):
        return
    for link in LINK.findall(text):
        name, _, anchor = link.partition("#")
        target = (ROOT / path).parent.joinpath(name) if name else ROOT / path
        if not target.exists() or anchor and anchor not in anchors(target):
            yield f"{path}: links to {link}, which does not exist"


CODE_CHECKS = (
    check_order,
    check_public_only,
    check_tbb,
    check_onednn,
    check_zydis,
    check_isa_tests,
    check_length,
)


def check_file(path, text):
    """What is wrong with one file of the repository."""
    checks = (check_machine_paths, check_named_tests, check_passages, check_quoted_passages, check_links) + (
        CODE_CHECKS if path.endswith(CODE) else ()
    )
    return [problem for check in checks for problem in check(path, text)]


def repository_files():
    """Files that are tracked, or would be; where git can't say (an archive), all but what is built."""
    git = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z", "-co", "--exclude-standard"]
    try:
        names = subprocess.run(git, check=True, capture_output=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
        names = [n for n in names if not re.match(r"(build|\.venv|\.git)/|.*__pycache__", n)]
    return sorted(n for n in set(names) if n and (ROOT / n).is_file())


def check_repository():
    problems, long_files, code, total = [], [], 0, 0
    for path in repository_files():
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        total += 1
        problems += check_file(path, text)
        if path.endswith(CODE):
            code += path.startswith(("include/", "src/", "jit/"))
            if text.count("\n") > LINES_REPORTED and not path.startswith("include/"):
                long_files.append(f"{path} ({text.count(chr(10))} lines)")
    if code < 2:
        problems.append("found no sources to check: run it inside the repository")
    for problem in problems:
        print(problem)
    for name in long_files:
        print(f"note: {name}: over {LINES_REPORTED} lines, think of splitting it")
    print(f"architecture: {code} library files in order, {total} files read, {len(problems)} problems")
    return 1 if problems else 0


def self_test():
    """Every rule must catch its wrong file and leave its right one alone."""
    home = "/".join(["", "home", "someone", "x"])
    # path, text, part of the message (None: no message)
    cases = [
        ("src/half.h", '#include "src/plan.h"\n', "stands above it"),
        ("jit/qk.cc", '#include "jit/pv.h"\n', "stands above it"),
        ("jit/merge.cc", '#include "src/problem.h"\n', "stands above it"),
        ("src/api.cc", '#include "src/unheard_of.h"\n', "place it there"),
        ("src/unheard_of.cc", "", "place it there"),
        ("jit/qk.cc", "  #  include <jit/pv.h>\n", "stands above it"),
        ("src/plan.cc", "#include <tbb/task_arena.h>\n", "may know oneTBB"),
        ("src/context.cc", "#include <oneapi/tbb/task_arena.h>\n", "may know oneTBB"),
        ("src/project.cc", "#include <oneapi/dnnl/dnnl.hpp>\n", "may know oneDNN"),
        ("src/dense.cc", "#include <oneapi/dnnl/dnnl.hpp>\n", None),
        ("jit/listing.cc", "#include <Zydis/Zydis.h>\n", "may know Zydis"),
        ("jit/zydis.cc", "#include <Zydis/Zydis.h>\n", None),
        ("bench/decode.cc", '#include "src/plan.h"\n', "only the public header"),
        ("jit/qk.cc", "if (q.is_zmm()) {}\n", "tell AVX2 from AVX-512"),
        ("docs/x.md", f"see {home}\n", "a machine's path"),
        ("src/plan.cc", "\n" * (LINES_ALLOWED + 1), "not allowed"),
        ("src/api.cc", '#include "src/ops/attention.h"\n#include <vector>\n', None),
        ("jit/pv.cc", '#include "jit/pv.h"\n#include "jit/qk.h"\n#include "src/half.h"\n', None),
        ("jit/row_loader.cc", '#include "jit/row_loader_int8.h"\n', None),
        ("src/half.h", '/*\n#include "src/plan.h"\n*/\n// #include "src/plan.h"\n', None),
        ("src/execute.cc", "#include <oneapi/tbb/task_arena.h>\n", None),
        ("jit/emitter.cc", "if (q.is_zmm()) {}\n", None),
        (OPERATORS_PAGE, "`test_golden.py::test_nothing`\n", "does not exist"),
        (OPERATORS_PAGE, "see `Accepted.Nothing`\n", "does not exist"),
        (OPERATORS_PAGE, f"{FEATURES}\n| a | b |\n| --- | --- |\n| x |  |\n", "names no test"),
        (OPERATORS_PAGE, f"{FEATURES}\n| a | b |\n| --- | --- |\n| x | `quire.append` |\n", "names no test"),
        (
            OPERATORS_PAGE,
            f"| a | b |\n|---|---|\n| x |  |\n{FEATURES}\n| a | b |\n|---|---|\n| x | {NO_FEATURE} |\n",
            None,
        ),
        (
            OPERATORS_PAGE,
            "`test_golden.py::test_golden` `tests/python/test_onnx.py::test_definition` `Accepted.WiderMask`",
            None,
        ),
        ("jit/qk.cc", '// quicker (docs/performance.md,\n// "From\n// nowhere").\n', "does not list"),
        ("jit/qk.cc", '// quicker (docs/performance.md,\n// "From\n// DRAM").\n', None),
        ("docs/x.md", "[here](performance.md), [there](nowhere.md)\n", "links to nowhere.md"),
        ("docs/x.md", "[a](performance.md#nowhere)\n", "links to performance.md#nowhere"),
        ("docs/x.md", "[a](performance/dram.md#from-dram) [b](https://example.org/x.md)\n", None),
        ("jit/qk.cc", '// (docs/performance.md, "DRAM")\n', "does not list"),
        (PASSAGES_PAGE, "- [From DRAM](performance/dram.md)\n  - Nowhere\n", "not on its page"),
        (PASSAGES_PAGE, "- [From DRAM](performance/dram.md)\n  - Whole pages\n", None),
        ("docs/x.md", f"see docs{home}, https://example.org{home} and ~{home}\n", None),
    ]
    failed = 0
    for path, text, expected in cases:
        problems = check_file(path, text)
        if expected is None and problems or expected is not None and not any(expected in p for p in problems):
            failed += 1
            print(f"self-test: {path} {text[:40]!r}: expected {expected!r}, got {problems}")
    print(f"architecture self-test: {len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(self_test() if "--self-test" in sys.argv[1:] else check_repository())
