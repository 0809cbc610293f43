"""Answers of RAS as text, in the wordings of several versions, after the user guide's samples."""

from __future__ import annotations

_HEAD = """\
NCCL version {version} compiled with CUDA 12.9
CUDA runtime version 12090, driver version 12090

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  {errors}
    1         7         4         1         4        28   RUNNING      OK

Errors
======

"""
_UNEVEN = """\
Job summary
===========

  Nodes  Processes         GPUs
          per node  per process
      3          8            1
      1          7            1

  Nodes  Processes         GPUs
(total)    (total)      (total)
      4         31           31

The outlier node:
  Node 172.16.64.213 running processes 1,2,3,4,5,6,7

Communicators... (0.00s)
=============

"""
_WARNINGS = """\
Warnings
========

"""

OK = _HEAD.format(version="2.29.3", errors="OK") + _WARNINGS
UNEVEN = _UNEVEN + "Errors\n======\n\n" + _WARNINGS

UNRESPONSIVE_2_24 = (
    _HEAD.format(version="2.24.3", errors="INCOMPLETE")
    + """\
INCOMPLETE
  Missing communicator data from 1 job process
  Process 3487984 on node 172.16.64.213 managing GPU 5

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  The missing rank: 21

"""
    + _WARNINGS
    + """\
TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data

"""
)
DEAD_2_30 = (
    _HEAD.format(version="2.30.7", errors="INCOMPLETE")
    + """\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 3487984 on node 172.16.64.213 managing GPUs 2,3 (NVML 6,7)

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 2 ranks
  Rank 21 -- GPU 2 (NVML 6) managed by process 3487984 on node 172.16.64.213
  Rank 22 -- GPU 3 (NVML 7) managed by process 3487984 on node 172.16.64.213

"""
    + _WARNINGS
)
MISMATCH_2_24 = (
    _HEAD.format(version="2.24.3", errors="MISMATCH")
    + _WARNINGS
    + """\
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  31 ranks have launched up to operation 6650
  Rank 7 has launched up to operation 6649 -- GPU 7 managed by process 483079 on node 172.16.64.210

"""
)
MISMATCH_2_26 = (
    _HEAD.format(version="2.26.2", errors="MISMATCH")
    + _WARNINGS
    + """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different AllGather operation counts
  30 ranks have launched up to operation 640
  2 ranks have launched up to operation 641
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124

  Communicator ranks have different AllReduce operation counts
  31 ranks have launched up to operation 9
  Rank 3 has not launched any operations -- GPU 3 managed by process 483075 on node 172.16.64.210

"""
)
ERRORS_2_29 = (
    _HEAD.format(version="2.29.3", errors="ERROR,MISMATCH")
    + """\
#0-0 (fa93daea854b060b) ERROR
  Asynchronous error on 3 ranks
  2 ranks reported remote process exited or there was a network error
  Rank 12 -- GPU 4 managed by process 323032 on node 10.137.190.124
  Rank 13 -- GPU 5 managed by process 323033 on node 10.137.190.124
  Rank 3 reported unhandled system error -- GPU 3 managed by process 483075 on node 172.16.64.210

"""
    + _WARNINGS
    + """\
#0-0 (fa93daea854b060b) MISMATCH
  Communicator ranks have different status
  29 ranks have status RUNNING
  2 ranks have status NOCOMM
  Rank 30 -- GPU 6 managed by process 1 on node 172.16.64.211
  Rank 31 -- [process information not found]
  Rank 5 has status FINALIZE -- GPU 5 managed by process 483077 on node 172.16.64.210

"""
)
ALL = (OK, UNEVEN, UNRESPONSIVE_2_24, DEAD_2_30, MISMATCH_2_24, MISMATCH_2_26, ERRORS_2_29)
