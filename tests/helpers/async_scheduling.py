"""vLLM's asynchronous scheduling, the default on a GPU, in engines on the CPU, where vLLM switches it off."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch


class Nothing:
    """An event or a stream that has nothing to wait for."""

    device = torch.device("cpu")

    def __init__(self, *_, **__):
        self.record = self.synchronize = self.wait = self.wait_stream = self.wait_event = lambda *_: None


@contextmanager
def asynchronous_scheduling() -> Iterator[None]:
    """Asynchronous scheduling in engines that are built, and used, meanwhile."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker import cpu_model_runner

    check = CpuPlatform.check_and_update_config.__func__

    def force(platform, config):
        check(platform, config)
        config.scheduler_config.async_scheduling = True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CpuPlatform, "check_and_update_config", classmethod(force))
        patch.setattr(cpu_model_runner, "_torch_cuda_wrapper", nullcontext)
        for module, name in ((torch, "Event"), (torch.cuda, "Event"), (torch.cuda, "Stream")):
            patch.setattr(module, name, Nothing)
        patch.setattr(torch.cuda, "current_stream", Nothing)
        patch.setattr(torch.cuda, "stream", nullcontext)
        yield
