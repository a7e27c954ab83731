"""What a model of some shape will take, before anything is loaded: parameters, operations, bytes, seconds."""

from interp.models.planner.accelerators import ACCELERATORS as ACCELERATORS
from interp.models.planner.accelerators import Accelerator as Accelerator
from interp.models.planner.accelerators import accelerator as accelerator
from interp.models.planner.depth import depth_width as depth_width
from interp.models.planner.flops import token_flops as token_flops
from interp.models.planner.intensity import decode_step as decode_step
from interp.models.planner.intensity import prefill_step as prefill_step
from interp.models.planner.memory import head_sharing as head_sharing
from interp.models.planner.memory import kv_bytes as kv_bytes
from interp.models.planner.memory import kv_bytes_per_token as kv_bytes_per_token
from interp.models.planner.memory import serving as serving
from interp.models.planner.parameters import Parameters as Parameters
from interp.models.planner.parameters import parameters as parameters
from interp.models.planner.plan import ModelPlan as ModelPlan
from interp.models.planner.plan import plan_model as plan_model
from interp.models.planner.plan import plans_figure as plans_figure
from interp.models.planner.plan import plans_frame as plans_frame
from interp.models.planner.points import point_shapes as point_shapes
from interp.models.planner.reading import read_shape as read_shape
from interp.models.planner.shape import Numbers as Numbers
from interp.models.planner.speed import Speed as Speed
from interp.models.planner.speed import this_machine as this_machine
