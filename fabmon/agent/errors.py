"""What can be wrong with the way an agent is started.

AgentError      an option, a file or the place to listen; the message says what and what to do
"""

from __future__ import annotations


class AgentError(Exception):
    """The agent cannot start as it was asked to."""
