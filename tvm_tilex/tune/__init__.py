"""Staged tuning: measure candidates that are right, keep everything, replay the winner.

Proof says which candidates are legal, the cost model says what to try first, measurement decides.
"""

from tvm_tilex.tune.api import resume, tune
from tvm_tilex.tune.database import Database, TuningDatabaseWarning
from tvm_tilex.tune.endpoint import Endpoint
from tvm_tilex.tune.job import Timing
from tvm_tilex.tune.record import Measurement, Trial
from tvm_tilex.tune.replay import Replayed, replay
from tvm_tilex.tune.report import Report, Settings
from tvm_tilex.tune.space import Dimension, Space, default_space

__all__ = [
    "Database",
    "Dimension",
    "Endpoint",
    "Measurement",
    "Replayed",
    "Report",
    "Settings",
    "Space",
    "Timing",
    "Trial",
    "TuningDatabaseWarning",
    "default_space",
    "replay",
    "resume",
    "tune",
]
