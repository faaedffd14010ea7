# mypy: ignore-errors
"""Make an installed CPU build of vLLM believe that it runs on a given NVIDIA card.

Only questions that vLLM asks while it *plans* are answered (capability, memory, which kernels exist); nothing is
ever computed. Import this before anything of vLLM, call `install()` once, then set `CARD` per case.
Written for vLLM 0.32. FlashInfer and DeepGEMM are separate packages on a real machine: FlashInfer is not faked, so on
compute capability 10 vLLM chooses another backend than it would there.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types

import torch
from torch.overrides import TorchFunctionMode

GIB = 1024**3
STUBBED = ("torchvision", "timm", "cutlass", "cuda", "quack", "tilelang")
FLASH_ATTENTION = {8: (2,), 9: (2, 3, 4), 10: (2, 4), 11: (2, 4), 12: (2,)}  # versions in the CUDA wheel, per major


class Card:
    """The card of the case in hand; module-level, because vLLM asks class methods."""

    major, minor = 9, 0
    name = "NVIDIA H100 80GB HBM3"
    total_bytes = int(79.1 * GIB)
    count = 8

    @property
    def capability(self) -> tuple[int, int]:
        return (self.major, self.minor)


CARD = Card()


class Silent:
    """Accepts every call and attribute, does nothing: streams, events, CUDA-only ops, image transforms."""

    def __init__(self, *_args, **_kwargs) -> None:
        pass

    def __call__(self, *_args, **_kwargs):
        return None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Silent()


def constant(value):
    """A function of anything that returns `value`."""
    return lambda *_args, **_kwargs: value


class _Anything(type):
    """A class whose every attribute is such a class: what `torchvision.x.y` is when nobody calls it."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (Silent,), {})

    def __getitem__(cls, _item):
        return cls


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets models be imported without torchvision (PyPI's wheel wants CUDA's torch) and CUDA's own packages."""

    def find_spec(self, fullname, _path=None, _target=None):
        if fullname.split(".")[0] not in STUBBED and not fullname.startswith("vllm.vllm_flash_attn."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True, origin="stub")

    def exec_module(self, module):
        module.__version__ = "0.28.0"
        module.__file__ = "stub"
        module.__getattr__ = lambda name: _attribute(module.__name__, name)


def _attribute(module: str, name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "InterpolationMode":
        import enum

        modes = "NEAREST NEAREST_EXACT BILINEAR BICUBIC BOX HAMMING LANCZOS"
        return enum.Enum(name, {m: m.lower().replace("_", "-") for m in modes.split()})
    if name.islower() and module == "torchvision":
        return importlib.import_module(f"{module}.{name}")
    return _Anything(name, (Silent,), {})


class ToMeta(TorchFunctionMode):
    """Whatever a layer's __init__ puts on `cuda` lands on torch's meta device; values read back are placeholders."""

    def __torch_function__(self, func, _types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if args and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            name = getattr(func, "__name__", "")
            if name in ("item", "__int__", "__float__", "__index__"):
                return 1
            if name == "__bool__":
                return True
            if name == "tolist":
                return torch.zeros(args[0].shape, device="cpu").tolist()
            if name == "cpu":
                return torch.zeros(args[0].shape, dtype=args[0].dtype, device="cpu")
        device = kwargs.get("device")
        if device is not None and (isinstance(device, int) or torch.device(device).type == "cuda"):
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def install_stub_packages() -> None:
    """Comes last in line: a package that is really there wins."""
    sys.meta_path.append(_StubFinder())


def install() -> None:
    """Replace vLLM's platform, the compiled modules it looks for, and the CUDA calls of torch."""
    for name in ("_C_stable_libtorch", "_moe_C_stable_libtorch"):
        sys.modules.setdefault(f"vllm.{name}", types.ModuleType(f"vllm.{name}"))
    _install_platform()
    _install_flash_attention()
    _install_torch()
    _install_ops()


def _platform_class():
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class FakeCuda(CudaPlatformBase):
        """CUDA as `CARD` says."""

        get_device_capability = staticmethod(lambda device_id=0: DeviceCapability(*CARD.capability))
        get_device_name = staticmethod(lambda device_id=0: CARD.name)
        get_device_uuid = staticmethod(constant("GPU-fake"))
        get_device_total_memory = staticmethod(lambda device_id=0: CARD.total_bytes)
        is_fully_connected = staticmethod(constant(True))
        device_count = staticmethod(lambda: CARD.count)
        num_compute_units = staticmethod(constant(132))
        is_integrated_gpu = staticmethod(constant(False))
        get_device_numa_node = staticmethod(constant(None))
        import_kernels = staticmethod(constant(None))
        get_cuda_runtime_major = staticmethod(constant(12))

        @staticmethod
        def has_device_capability(capability, device_id=0):
            wanted = capability if isinstance(capability, tuple) else divmod(capability, 10)
            return CARD.capability >= tuple(wanted)

    return FakeCuda


def _install_platform() -> None:
    import vllm.platforms as platforms

    platforms._current_platform = _platform_class()()
    # Triton is installed but switched off in a CPU build without a driver; its decorators work undriven.
    real = platforms.vllm_version_matches_substr
    platforms.vllm_version_matches_substr = constant(False)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import vllm.triton_utils  # noqa: F401
    from vllm.utils import import_utils

    import_utils.has_deep_gemm = lambda: CARD.major in (9, 10)
    del os.environ["CUDA_VISIBLE_DEVICES"]
    platforms.vllm_version_matches_substr = real


def _install_flash_attention() -> None:
    """FlashAttention ships in the CUDA wheel: answer as it would."""
    package = types.ModuleType("vllm.vllm_flash_attn")
    interface = types.ModuleType("vllm.vllm_flash_attn.flash_attn_interface")
    package.__path__ = []
    package.flash_attn_interface = interface
    for module in (package, interface):
        module.is_fa_version_supported = lambda v, device=None: v in FLASH_ATTENTION.get(CARD.major, ())
        module.fa_version_unsupported_reason = constant("not in the stub")
        module.__getattr__ = _no_kernel
        sys.modules[module.__name__] = module


def _no_kernel(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return constant(None)


def _install_torch() -> None:
    class Properties:
        total_memory = property(lambda _self: CARD.total_bytes)
        name = property(lambda _self: CARD.name)
        major = property(lambda _self: CARD.major)
        minor = property(lambda _self: CARD.minor)
        multi_processor_count = 132
        shared_memory_per_block_optin = 232448

    torch.cuda.get_device_capability = lambda *_: CARD.capability
    torch.cuda.get_device_name = lambda *_: CARD.name
    torch.cuda.get_device_properties = lambda *_a, **_k: Properties()
    torch.cuda.device_count = lambda: CARD.count
    torch.cuda.current_device = constant(0)
    torch.cuda.Stream = torch.cuda.Event = torch.Event = Silent
    torch.cuda.current_stream = lambda *_a, **_k: Silent()
    torch.cuda._lazy_init = torch.cuda.set_device = constant(None)
    torch.accelerator.empty_cache = torch.accelerator.synchronize = constant(None)
    torch.accelerator.current_device_index = constant(0)
    torch.accelerator.is_available = constant(True)
    torch.accelerator.device_count = lambda: CARD.count


def _install_ops() -> None:
    import vllm._custom_ops as ops
    import vllm.v1.attention.ops.flashmla as flashmla

    for name in dir(ops):
        if "supports" in name:
            setattr(ops, name, _supports(name))
    flashmla._is_flashmla_available = constant((True, None))  # ships in the CUDA wheel
    find = torch._ops._OpNamespace.__getattr__

    def find_or_silent(namespace, name):
        try:
            return find(namespace, name)
        except AttributeError:
            if name.startswith("__") or not namespace.name.startswith(("_C", "_moe_C", "_vllm")):
                raise
            return Silent()

    torch._ops._OpNamespace.__getattr__ = find_or_silent


def _supports(name: str):
    fp8 = "cutlass_scaled_mm_supports_fp8" in name
    return lambda *_a, **_k: CARD.major >= 9 or (fp8 and CARD.capability >= (8, 9))
