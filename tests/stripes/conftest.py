"""Makes the helper of this folder importable."""

import importlib.util
import sys
from pathlib import Path

_NAME = "stripe_runs"
_SPEC = importlib.util.spec_from_file_location(_NAME, Path(__file__).with_name(f"{_NAME}.py"))
assert _SPEC is not None and _SPEC.loader is not None
sys.modules[_NAME] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(sys.modules[_NAME])
