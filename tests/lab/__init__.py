"""A real leaf-spine fabric in network namespaces: `Lab` builds it, tests and people use it."""

from tests.lab.fabric import Lab
from tests.lab.netns import LabError
from tests.lab.traffic import Flow

__all__ = ["Flow", "Lab", "LabError"]
