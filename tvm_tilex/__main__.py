"""``python -m tvm_tilex`` is ``tilex``."""

from tvm_tilex.tools.cli import main

main()
