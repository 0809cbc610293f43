"""What can be wrong with a recording.

RecordingError      it cannot be read or written; the message says what, where and what to do
  NotARecording     the file is something else
  TooNew            its format's major version is a later one
  Damaged           a frame of it does not hold what its checksum says
  InUse             another recorder is writing to the file
  Moved             a frame was written anew, elsewhere, since it was looked up
"""

from __future__ import annotations


class RecordingError(Exception):
    """It cannot be read or written."""


class NotARecording(RecordingError):
    """The file is something else."""


class TooNew(RecordingError):
    """Its format is of a later major version."""


class Damaged(RecordingError):
    """A frame does not hold what its checksum says."""


class InUse(RecordingError):
    """Another recorder is writing to the file."""


class Moved(RecordingError):
    """A frame was written anew since it was looked up: a refresh finds it again."""
