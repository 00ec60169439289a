"""A pretended CUDA device: tensors that say `cuda:0`, hold numbers of the CPU, and refuse tensors of the host.

`pretended_device()` makes torch.cuda look available. As on a real device, an operation on tensors of the device and of
the host raises, except for copies and for scalars in pointwise operations. So does an index on the host, which a real
device accepts, but copies at each use. What makes the host wait is counted. C++ takes the tensors for those of the CPU,
so the CPU's kernels and autocast run; the flash kernel and products that widen their result are written out.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch._dynamo  # torch imports it with the first operation, and would meet the functions below in torch.cuda
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
CPU, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
MEMORY = 80 * 2**30  # bytes
INDEXING = (aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default)
# operations whose result has a size, or a Python value, that depends on numbers of the device; indexing only by a mask
DATA_DEPENDENT = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
PACKAGE = f"{Path(__file__).parents[2]}/d3s/"


class DeviceMismatch(RuntimeError):
    """Tensors of the device and of the host in one operation."""


class PretendedTensor(torch.Tensor):
    """A tensor of the device. Its methods are those that would not reach PretendedDevice through torch's dispatcher."""

    @staticmethod
    def __new__(cls, numbers: Tensor) -> "PretendedTensor":
        """Wrap a tensor of the host, which is not copied."""
        layout = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype}
        tensor = torch.Tensor._make_wrapper_subclass(cls, numbers.size(), **layout)
        tensor.numbers = numbers
        return tensor

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)
    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        """Run an operation of a thread in which PretendedDevice is not active."""
        return CURRENT[-1].__torch_dispatch__(func, types, args, kwargs)

    def get_device(self) -> int:
        return 0

    def to(self, *args, **kwargs) -> Tensor:
        wanted = [*args, *kwargs.values()]
        devices = [torch.device(x) for x in wanted if isinstance(x, str | torch.device)]
        devices += [x.device for x in wanted if isinstance(x, Tensor)]
        if not devices or devices[0].type == "cuda":
            args, kwargs = mapped(lambda x: CPU if isinstance(x, str | torch.device) else x, (args, kwargs))
            return super().to(*args, **kwargs)
        count_wait("copy to the host")
        return ToHost.apply(self).to(*args, **kwargs)

    def cpu(self) -> Tensor:
        return self.to("cpu")

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None) -> "PretendedTensor":
        return torch.tensor(data, dtype=dtype or self.dtype, device=DEVICE)

    def tolist(self) -> Any:
        count_wait("tolist")
        return self.numbers.detach().tolist()

    def numpy(self, *_: Any, **__: Any) -> None:
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu()")

    __array__ = numpy

    def data_ptr(self) -> int:
        return self.numbers.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.numbers.untyped_storage()

    def backward(self, *args, **kwargs) -> None:
        """As Tensor.backward, see PretendedDevice.differentiates."""
        device = CURRENT[-1]
        device.differentiates += 1
        try:
            super().backward(*args, **kwargs)
        finally:
            device.differentiates -= 1

    def __deepcopy__(self, memo) -> "PretendedTensor":
        return memo.setdefault(id(self), self.detach().clone().requires_grad_(self.requires_grad))

    def __reduce_ex__(self, protocol):
        """What torch.save writes; it is loaded on the host."""
        count_wait("copy to the host")
        return self.numbers.detach().__reduce_ex__(protocol)

    def __repr__(self, **_: Any) -> str:
        return f"PretendedTensor({self.numbers})"


class ToHost(torch.autograd.Function):
    """A copy on the host whose gradient goes to the device."""

    @staticmethod
    def forward(ctx, tensor):
        return tensor.numbers.detach().clone()

    @staticmethod
    def backward(ctx, grad):
        return PretendedTensor(grad.detach().clone())


class PretendedDevice(TorchDispatchMode):
    """Runs operations on the numbers of their tensors, and counts the waits of the host: `waits[what, where]`."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.differentiates = 0  # backward passes from the device; their formulas in C++ create tensors of the device

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, tensors = kwargs or {}, []
        plain_args, plain_kwargs = mapped(partial(plain, tensors), (args, kwargs))
        ours = any(isinstance(x, PretendedTensor) for x in tensors)
        if not ours and getattr(kwargs.get("device"), "type", None) != "cuda":
            result = func(*args, **kwargs)
            return wrapped(result) if self.differentiates and not tensors and in_formula() else result
        host = [x for x in tensors if not isinstance(x, PretendedTensor)]
        if ours:
            self._check(func, args, host)
        elif host:  # a copy of a tensor of the host
            count_wait("copy to the device")
        if func in INDEXING:
            if any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1]):
                count_wait("index by a mask")
        elif not DATA_DEPENDENT.isdisjoint(func.tags) and kwargs.get("output_size") is None:  # of repeat_interleave
            count_wait(func.overloadpacket.__name__)
        generator = kwargs.get("generator")
        if generator is not None and generator.device != DEVICE:
            raise DeviceMismatch(f"{func}: a generator of {generator.device} for a tensor of {DEVICE}")
        result = KERNELS.get(func, func)(*plain_args, **plain_kwargs)
        if torch.Tag.inplace_view in func.tags:  # squeeze_ and the like
            with no_dispatch():
                func(*args, **kwargs)
        if func._schema.is_mutable:  # return the arguments themselves
            owners = {id(x.numbers): x for x in tensors if isinstance(x, PretendedTensor)}
            return mapped(lambda x: owners.get(id(x), x), result)
        return wrapped(result)

    def _check(self, func, args, host: list[Tensor]) -> None:
        if func is aten.copy_.default and host:
            count_wait("copy to the device" if host[0] is args[1] else "copy to the host")
            return
        target = [args[0]] if func._schema.is_mutable else []
        scalars = torch.Tag.pointwise in func.tags and not any(x is y for x in host for y in target)
        if any(x.dim() > 0 or not scalars for x in host):
            shapes = [(str(x.device), tuple(x.shape), x.dtype) for x in host]
            raise DeviceMismatch(f"{func}: tensors of {DEVICE} and of the host: {shapes}")


CURRENT: list[PretendedDevice] = []


def mapped(function: Callable, x: Any) -> Any:
    """Apply a function to the items of nested lists, tuples and dictionaries; torch's own takes four times as long."""
    if isinstance(x, list | tuple):
        return type(x)([mapped(function, item) for item in x])
    return {name: mapped(function, item) for name, item in x.items()} if isinstance(x, dict) else function(x)


def plain(tensors: list[Tensor], x: Any) -> Any:
    """The numbers of a tensor, which joins `tensors`, and the CPU as the device."""
    if isinstance(x, Tensor):
        tensors.append(x)
        return x.numbers if isinstance(x, PretendedTensor) else x
    return CPU if isinstance(x, torch.device) else x


def wrapped(result: Any) -> Any:
    """The tensors of a result as those of the device."""
    return mapped(lambda x: PretendedTensor(x) if type(x) is Tensor else x, result)


def in_formula() -> bool:
    """Whether a formula in C++ calls, not the backward of a Python function."""
    node = torch._C._current_autograd_node()
    return node is not None and not isinstance(node, BackwardCFunction)


def count_wait(what: str) -> None:
    """Count a wait of the host, at the nearest function of d3s."""
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    where = "elsewhere"
    if frame:
        file = frame.f_code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
        where = f"{file}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"
    CURRENT[-1].waits[what, where] += 1


def widening_product(left: Tensor, right: Tensor, dtype: torch.dtype) -> Tensor:
    """torch.mm(left, right, out_dtype=dtype), which the CPU does not have."""
    return left.to(dtype) @ right.to(dtype)


KERNELS: dict[Any, Callable] = {aten.mm.dtype: widening_product}


def flash_attention(q, k, v, cu_q, cu_k, longest_q, longest_k, *, window_size, scale, enable_gqa=False) -> Tensor:
    """torch.nn.attention.varlen.varlen_attn as d3s calls it; it refuses what the kernel refuses."""
    assert {x.dtype for x in (q, k, v)} <= {torch.float16, torch.bfloat16} and cu_q.dtype == torch.int32
    assert window_size[0] >= -1 and window_size[1] == 0 and cu_q is cu_k and cu_q.is_cuda
    sizes = cu_q.numbers.diff().tolist()
    assert sum(sizes) == len(q) == len(k) and max(sizes) == longest_q == longest_k
    parts = zip(*(x.transpose(0, 1)[None].split(sizes, dim=2) for x in (q, k, v)))
    reach = window_size[0] if window_size[0] >= 0 else longest_q
    masks = [torch.ones(n, n, dtype=torch.bool, device=q.device).tril().triu(-reach) for n in sizes]
    outs = [F.scaled_dot_product_attention(*p, m, scale=scale, enable_gqa=enable_gqa) for p, m in zip(parts, masks)]
    return torch.cat(outs, dim=2)[0].transpose(0, 1)


class DeviceIndex(TorchFunctionMode):
    """Names `cuda:0` for `cuda`, of which C++ would ask the device that is not there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.device:
            return func(*args, **kwargs or {})
        args = [DEVICE if is_unindexed(x) else x for x in args]
        return func(*args, **{name: DEVICE if is_unindexed(x) else x for name, x in (kwargs or {}).items()})


def is_unindexed(x: Any) -> bool:
    return isinstance(x, str | torch.device) and str(x) == "cuda"


class Autocast(torch.autocast):
    """torch.autocast, which means the CPU's where the device is named."""

    def __init__(self, device_type: str, *args, **kwargs) -> None:
        super().__init__("cpu", *args, **kwargs)


class Generator(torch.Generator):
    """A generator that may be one of the device."""

    def __new__(cls, device: str | torch.device = "cpu") -> "Generator":
        """Make a generator of the host, which `device` hides."""
        generator = super().__new__(cls)
        generator.place = DEVICE if torch.device(device).type == "cuda" else CPU
        return generator

    device = property(lambda self: self.place)


class Stream:
    """A stream or an event, on which nothing is ever unfinished."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def synchronize(self) -> None:
        count_wait("synchronize")

    def query(self) -> bool:
        return True

    record = wait = wait_event = wait_stream = lambda self, *_: None


class Profile(torch.profiler.profile):
    """torch's profiler, which must be asked for the device, and would report at each operation that there is none."""

    def __init__(self, *, activities: list[ProfilerActivity], **options: Any) -> None:
        """Profile the host alone."""
        assert ProfilerActivity.CUDA in activities
        super().__init__(activities=[ProfilerActivity.CPU], **options)


def figures() -> dict[str, Callable]:
    """The functions of torch.cuda, of a device with a state of its generator and without a measured memory."""
    random = torch.Generator()
    zero, nothing, true = lambda *_, **__: 0, lambda *_, **__: None, lambda *_, **__: True
    properties = SimpleNamespace(total_memory=MEMORY, name="Pretended GPU", major=9, minor=0)
    memory = ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved")
    ignored = ("_lazy_init", "set_device", "empty_cache", "reset_peak_memory_stats", "manual_seed", "manual_seed_all")
    return {
        **dict.fromkeys(memory, zero),
        **dict.fromkeys(ignored, nothing),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), true),
        **dict.fromkeys(("Stream", "Event", "current_stream"), Stream),
        **dict.fromkeys(("device", "stream"), lambda *_: nullcontext()),
        "device_count": lambda: 1,
        "current_device": zero,
        "synchronize": lambda *_: count_wait("synchronize"),
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
        "get_device_name": lambda *_: "Pretended GPU",
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "get_rng_state": lambda *_: random.get_state(),
        "get_rng_state_all": lambda: [random.get_state()],
        "set_rng_state": lambda state, *_: random.set_state(state),
    }


@contextmanager
def pretended_device() -> Iterator[PretendedDevice]:
    """Pretend a CUDA device in this thread; `device.waits` are the waits since."""
    with pytest.MonkeyPatch.context() as patch, DeviceIndex(), PretendedDevice() as device:
        for name, function in figures().items():
            patch.setattr(torch.cuda, name, function)
        for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
            function = getattr(torch, name)
            patch.setattr(torch, name, lambda *args, f=function: f(*("cpu" if x == "cuda" else x for x in args)))
        for module in (torch, torch.amp, torch.amp.autocast_mode):
            patch.setattr(module, "autocast", Autocast)
        patch.setattr(torch, "Generator", Generator)
        patch.setattr(torch.profiler, "profile", Profile)
        patch.setattr("d3s.policy.varlen_attn", flash_attention)
        patch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)  # else tied weights would part
        lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=) becomes a copy
        CURRENT.append(device)
        try:
            yield device
        finally:
            CURRENT.pop()
            torch._C._set_only_lift_cpu_tensors(lifts)
