"""Tables and live output: pure functions of records and run folders. Nothing here imports torch."""

from dartree_exp.report.compare import comparison
from dartree_exp.report.live import LiveLine
from dartree_exp.report.tables import run_table, run_tables

__all__ = ["LiveLine", "comparison", "run_table", "run_tables"]
