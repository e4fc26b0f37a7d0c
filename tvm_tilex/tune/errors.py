"""What can go wrong in tuning, beside what a candidate itself does."""

from __future__ import annotations

from tvm_tilex.errors import OptionError, TargetError, TilexError

__all__ = ["BudgetError", "DatabaseError", "MetricError", "ReportError", "TuningError"]


class TuningError(TilexError):
    """A tuning run that cannot go on; the message says what is kept and how to resume."""


class BudgetError(OptionError):
    """A search space with more compilations than the budget allows."""


class MetricError(TargetError):
    """A metric that this target cannot be measured by here."""


class ReportError(TilexError):
    """A tuning report that cannot be read, resumed or replayed."""


class DatabaseError(TilexError):
    """A tuning database that cannot be written, or whose file is not one."""
