"""What a kernel file may import, name, call and read: all the rest is refused. Data alone, for `static_reading.py`."""

IMPORTS = frozenset(
    "__future__ collections collections.abc contextlib dataclasses enum functools math numbers typing torch "
    "torch.autograd.function triton triton.language triton.language.extra triton.language.extra.libdevice "
    "triton.language.extra.cuda triton.language.extra.cuda.libdevice triton.language.math".split()
)
# Modules of the kernel's own package that may be imported; they are read by the same rules.
OWN_PACKAGES = ("kernels.ops",)
FROM = {
    "torch": frozenset(("Tensor",)),
    "torch.autograd.function": frozenset(("once_differentiable", "FunctionCtx")),
    "collections": frozenset(("namedtuple", "OrderedDict")),
    "functools": frozenset(("lru_cache", "cache", "partial")),
    "contextlib": frozenset(("nullcontext", "AbstractContextManager", "contextmanager")),
    "triton.language.extra": frozenset(("libdevice",)),
    "triton.language.extra.cuda": frozenset(("libdevice",)),
}

BUILTINS = frozenset(
    "None True False NotImplemented Ellipsis abs all any bool dict divmod enumerate float frozenset int isinstance len "
    "list max min object pow property range reversed round set slice sorted staticmethod classmethod str sum super tuple "
    "zip ValueError TypeError RuntimeError NotImplementedError AssertionError IndexError KeyError ArithmeticError "
    "__name__ __file__ __doc__".split()
)

# Chains below torch: types, allocation, dtype rules, devices. No arithmetic, so that nothing can stand in for a kernel.
TORCH = frozenset(
    "Tensor Size device dtype float float16 float32 float64 half bfloat16 double int8 int16 int32 int64 uint8 long int bool "
    "finfo iinfo empty empty_like empty_strided zeros zeros_like full full_like ones promote_types result_type "
    "get_default_dtype autograd.Function autograd.function.once_differentiable "
    "autograd.function.FunctionCtx cuda.device cuda.device_of cuda.current_device cuda.get_device_properties "
    "cuda.get_device_capability amp.custom_fwd amp.custom_bwd strided contiguous_format preserve_format "
    "version.hip compiler.is_compiling cuda.is_current_stream_capturing".split()
)
TRITON = frozenset(
    "jit autotune heuristics Config cdiv next_power_of_2 runtime.driver.active.get_current_target".split()
)
# In kernels; inline assembly and calls out of Triton's language are refused.
TL_REFUSED = frozenset("inline_asm_elementwise core extra semantic dispatch".split())

# Attributes of values (tensors, shapes, contexts, strings) outside of kernels.
ATTRIBUTES = frozenset(
    "shape dtype device dim ndim numel size stride is_contiguous contiguous view reshape expand expand_as transpose t "
    "unsqueeze squeeze flatten permute to type_as new_empty new_zeros new_full zero_ fill_ is_cuda is_floating_point "
    "element_size itemsize sum clamp_min clamp_max float requires_grad type index multi_processor_count major minor eps bits min max tiny bit_length "
    "smallest_normal nelement is_complex unbind split chunk narrow clone detach unflatten "
    "save_for_backward saved_tensors needs_input_grad mark_non_differentiable mark_dirty set_materialize_grads "
    "apply forward backward value items keys values append extend get format join startswith endswith lower upper "
    "partition removeprefix removesuffix constexpr arange element_ty any".split()
)
DECORATORS = frozenset(
    "triton.jit triton.autotune triton.heuristics staticmethod classmethod property once_differentiable "
    "torch.autograd.function.once_differentiable contextlib.contextmanager contextmanager functools.lru_cache lru_cache functools.cache "
    "cache torch.amp.custom_fwd torch.amp.custom_bwd dataclass dataclasses.dataclass torch.no_grad".split()
)
CACHES = frozenset("functools.lru_cache lru_cache functools.cache cache".split())
# A function whose results are remembered may take these alone: none holds a tensor.
CACHED_ANNOTATIONS = frozenset("int float bool str torch.device torch.dtype".split())

# Why the names that attacks use are refused; the others get the general reason.
REASONS = {
    "os": "reaches the environment, files and processes",
    "sys": "can end the process or reach the harness's modules",
    "gc": "finds the tensors of whoever called",
    "inspect": "reads the frames of whoever called",
    "ctypes": "reads and writes any memory of the process",
    "subprocess": "starts processes",
    "threading": "does work where no timer and no trace sees it",
    "multiprocessing": "starts processes",
    "asyncio": "does work where no timer and no trace sees it",
    "socket": "opens connections",
    "pickle": "runs code from data",
    "importlib": "imports what is not read",
    "builtins": "patches what the harness uses",
    "atexit": "runs after the harness has looked",
    "signal": "stops the harness",
    "time": "is the harness's clock",
    "pathlib": "reaches files",
    "tempfile": "reaches files",
    "open": "reaches files",
    "exec": "runs what is not read",
    "eval": "runs what is not read",
    "compile": "makes code that is not read",
    "__import__": "imports what is not read",
    "getattr": "reaches names that are not read",
    "setattr": "patches what the harness uses",
    "delattr": "patches what the harness uses",
    "globals": "reaches names that are not read",
    "locals": "reaches names that are not read",
    "vars": "reaches names that are not read",
    "id": "tells tensors apart by their address",
    "hash": "tells tensors apart by their content",
    "print": "writes what a careless reader may take for a verdict",
    "input": "waits for the keyboard",
    "data_ptr": "tells tensors apart by their address",
    "untyped_storage": "tells tensors apart by their address",
    "torch.compile": "lets another compiler write the kernel",
    "torch.autograd.grad": "differentiates with autograd instead of a kernel",
    "torch.enable_grad": "differentiates with autograd instead of a kernel",
    "torch.nn.functional": "computes with PyTorch's own kernels",
    "torch.matmul": "computes with PyTorch's own kernels",
    "torch.addmm": "computes with PyTorch's own kernels",
    "torch.cuda.synchronize": "is the harness's clock",
    "torch.cuda.Event": "is the harness's clock",
    "torch.cuda.Stream": "does work on a stream that no timer sees",
    "torch.cuda.stream": "does work on a stream that no timer sees",
    "torch.manual_seed": "moves the harness's random numbers",
    "torch.library": "replaces operations that the harness uses",
    "triton.testing": "is the harness's clock",
    "register_hook": "runs outside of the phases that are watched",
}
