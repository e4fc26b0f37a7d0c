"""Every folder of tests is one that pytest goes into."""

import fnmatch
from pathlib import Path

TESTS = Path(__file__).parent


def test_no_folder_of_tests_is_passed_over(request):
    passed_over = request.config.getini("norecursedirs")
    folders = {path.parent for path in TESTS.rglob("test_*.py")} - {TESTS}
    assert TESTS / "build" in folders  # pytest's own list has that name
    for folder in folders:
        for part in folder.relative_to(TESTS).parts:
            assert not any(fnmatch.fnmatch(part, pattern) for pattern in passed_over), folder
