"""fedtide: asynchronous federated learning over wireless networks."""

from fedtide.config import Experiment, experiment
from fedtide.errors import FedtideError
from fedtide.simulate import Result, simulate
from fedtide.types import Candidates, Grant, Selection, Tick

__version__ = "0.1.0"
__all__ = ["Candidates", "Experiment", "FedtideError", "Grant", "Result", "Selection", "Tick", "experiment", "simulate"]
