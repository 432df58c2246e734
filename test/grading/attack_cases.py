"""Every attack by name, with what the static reading and the layers behind it must say of it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """`reads`: the subject that the static reading must name; empty where a kernel's text alone looks honest.

    `shows`: the kind of fault that must be found when the candidate is run all the same; empty where nothing can be
    seen on a CPU, or where it would harm the machine.
    """

    reads: str = ""
    shows: str = ""


VALUES = {
    "zeros": Attack(shows="wrong values"),
    "freed_memory": Attack(shows="wrong values"),
    "zeroes_inputs": Attack(shows="writes to its inputs"),
    "scans_gc": Attack("import gc"),
    "scans_frames": Attack("import inspect"),
    "remembers_pointers": Attack(".data_ptr", "wrong values"),
    "remembers_shapes": Attack("code at import", "wrong values"),
    "remembers_contents": Attack("code at import", "answers a second call without a launch"),
    "visible_shapes": Attack(shows="wrong values"),
    "seed_42": Attack("torch.manual_seed", "wrong values"),
    "ignores_weights": Attack(shows="wrong values"),
    "half_arithmetic": Attack(shows="wrong values"),
    "other_dtype": Attack(shows="another dtype of an output"),
    "other_stride": Attack(shows="another stride of an output"),
    "nan_everywhere": Attack(shows="wrong values"),
    "contiguous_only": Attack(shows="wrong values"),
    "three_dimensions_only": Attack(shows="wrong values"),
    "power_of_two_only": Attack(shows="reaches outside of its tensors"),
    "int32_offsets": Attack("offsets in 32 bits"),
    "failed_launch": Attack(shows="wrong values"),
}
GRADIENTS = {
    "zero_gradient": Attack(shows="wrong gradient"),
    "scaled_gradient": Attack(shows="wrong gradient"),
    "unit_upstream": Attack(shows="wrong gradient"),
    "first_upstream": Attack(shows="wrong gradient"),
    "no_weight_gradient": Attack(shows="missing gradient"),
    "clobbers_saved": Attack(".copy_", "another answer in a second backward"),
    "second_derivative_silent": Attack(shows="second derivative not refused"),
    "adds_up_twice": Attack(".grad", "gradients do not accumulate"),
    "computes_in_training_alone": Attack("torch.is_grad_enabled", "wrong values"),
    "autograd_in_backward": Attack("torch.autograd.grad", "computes with PyTorch instead of a kernel"),
}
FALLBACKS = {
    "decoy_matmul": Attack("@", "computes with PyTorch instead of a kernel"),
    "decoy_addmm": Attack("torch.addmm", "computes with PyTorch instead of a kernel"),
    "decoy_functional": Attack("import torch.nn.functional", "computes with PyTorch instead of a kernel"),
    "decoy_getattr": Attack("getattr", "computes with PyTorch instead of a kernel"),
    "registers_an_operator": Attack("torch.library.custom_op", "computes with PyTorch instead of a kernel"),
    "decoy_compile": Attack("torch.compile"),
    "plain_pytorch": Attack("torch.softmax", "launches no kernel in forward"),
    "try_except": Attack("try", "computes with PyTorch instead of a kernel"),
    "fallback_on_shapes": Attack("torch.softmax", "launches no kernel in forward"),
}
HARNESS = {
    "exits_at_import": Attack("code at import", "ends the process"),
    "prints_pass": Attack("import os", "ends the process"),
    "edits_tests": Attack("import pathlib", "changes files that are not its own"),
    "kills_evidence": Attack("import shutil", "removes its results"),
    "kills_its_parent": Attack("import signal", "crashes"),
    "patches_the_judge": Attack("torch.allclose =", "wrong values"),
    "opens_a_socket": Attack("import socket", "fails"),
}
# How work is timed is the benchmark's affair; what tampers with it is refused before anything runs.
TIMING = {
    "side_stream": Attack("torch.cuda.Stream"),
    "thread": Attack("import threading"),
    "lazy_tensor": Attack("class of torch.Tensor", "another type"),
    "patches_events": Attack("torch.cuda.Event.elapsed_time ="),
    "patches_synchronize": Attack("torch.cuda.synchronize ="),
    "patches_do_bench": Attack("import triton.testing"),
    "skips_calls": Attack("code at import", "wrong values"),
    "pins_the_cache": Attack("import ctypes"),
    "picks_its_dtype": Attack("import os"),
    "slows_the_baseline": Attack("torch.softmax ="),
}
PROTECTION = {
    "reads_the_environment": Attack("import os", "fails"),
    "writes_outside": Attack("import pathlib", "changes files that are not its own"),
    "forks": Attack("import os"),
    "fills_memory": Attack("", "fails"),
    "fills_disk": Attack("open", "fails"),
    "hangs": Attack("", "hangs"),
}
FAMILIES = {
    "values": VALUES,
    "gradients": GRADIENTS,
    "fallbacks": FALLBACKS,
    "harness": HARNESS,
    "timing": TIMING,
    "protection": PROTECTION,
}
ATTACKS = {name: attack for family in FAMILIES.values() for name, attack in family.items()}
