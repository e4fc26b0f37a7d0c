"""Makes the helper modules of this folder importable by plain names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for _name in ("raw_tirx", "admission_mutations"):
    if _name not in sys.modules:
        _path = Path(__file__).parent / f"{_name}.py"
        _spec = importlib.util.spec_from_file_location(_name, _path)
        assert _spec is not None and _spec.loader is not None
        sys.modules[_name] = importlib.util.module_from_spec(_spec)
        _spec.loader.exec_module(sys.modules[_name])
