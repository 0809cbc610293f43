"""Errors of the recording package; the message says what happened, where and what to do.

RecordingError      a recording cannot be read or written
  NotARecording     the file is not a fabmon recording
  TooNew            the file has a later major version of the format
  Damaged           bytes of the file do not match their checksum or do not decode
  InUse             another recorder is writing to the file
  Moved             the writer replaced a frame after it was looked up
"""

from __future__ import annotations


class RecordingError(Exception):
    """A recording cannot be read or written."""


class NotARecording(RecordingError):
    """The file is not a fabmon recording."""


class TooNew(RecordingError):
    """The file has a later major version of the format."""


class Damaged(RecordingError):
    """Bytes of the file do not match their checksum or do not decode."""


class InUse(RecordingError):
    """Another recorder is writing to the file."""


class FrameMoved(RecordingError):
    """The writer replaced a frame after it was looked up; a refresh finds it again."""
