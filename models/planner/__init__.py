"""What a model of some shape will take, before anything is loaded: parameters, operations, bytes, seconds."""

from interp.models.planner.accelerators import ACCELERATORS as ACCELERATORS
from interp.models.planner.accelerators import Accelerator as Accelerator
from interp.models.planner.accelerators import accelerator as accelerator
from interp.models.planner.memory import head_sharing as head_sharing
from interp.models.planner.memory import kv_bytes as kv_bytes
from interp.models.planner.memory import kv_bytes_per_token as kv_bytes_per_token
from interp.models.planner.memory import serving as serving
from interp.models.planner.parameters import Parameters as Parameters
from interp.models.planner.parameters import parameters as parameters
from interp.models.planner.points import point_shapes as point_shapes
from interp.models.planner.speed import Speed as Speed
from interp.models.planner.speed import this_machine as this_machine
