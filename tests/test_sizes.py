"""One idea a file: none is longer than 300 lines."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 300


def test_no_file_is_longer_than_300_lines():
    files = [
        file
        for folder in ("src", "kernels", "tests", "benchmarks", "docs")
        for file in (ROOT / folder).rglob("*.py")
    ]
    assert len(files) > 200
    lines = {str(f.relative_to(ROOT)): len(f.read_text().splitlines()) for f in files}
    assert not {name: n for name, n in lines.items() if n > MOST}
