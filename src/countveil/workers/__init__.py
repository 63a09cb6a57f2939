"""WHO DOES THE WORK: tasks in, results out, whatever processes stand behind it."""

from countveil.workers.processes import Processes
from countveil.workers.protocol import Job, Workers, beyond_here, hired

__all__ = ["Job", "Processes", "Workers", "beyond_here", "hired"]
