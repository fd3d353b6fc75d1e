"""Records of a run: samples, rounds, environment and lossless verdicts. Reports read only these."""

from dartree_exp.records.environment import describe_environment
from dartree_exp.records.folder import RunFolder
from dartree_exp.records.lock import FolderBusy
from dartree_exp.records.reader import Run, find_runs
from dartree_exp.records.schema import RecordError, RoundRecord, SampleRecord
from dartree_exp.records.trees import TreeRecord

__all__ = [
    "FolderBusy",
    "RecordError",
    "RoundRecord",
    "Run",
    "RunFolder",
    "SampleRecord",
    "TreeRecord",
    "describe_environment",
    "find_runs",
]
