"""GPUs whose nearest NIC is on another NUMA node."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.audit.fault import MEND, Fault
from fabmon.analysis.audit.survey import Survey
from fabmon.analysis.gpu_nic_numa import far_gpus


def gpus_far(survey: Survey) -> Iterator[Fault]:
    """One fault for each node that has any."""
    for node in survey.moment.fabric.nodes:
        far = far_gpus(node)
        if far:
            yield Fault(
                check="gpu_nic_numa",
                severity=MEND,
                ports=tuple(port.id for port in far),
                text="no NIC on the NUMA node of this GPU: its traffic crosses the link "
                "between the CPUs",
                advice="Move a NIC to the other CPU's slots, or bind jobs to the GPUs near one.",
            )
