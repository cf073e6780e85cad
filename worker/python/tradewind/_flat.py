"""Where the tensors of a model lie: as one vector of f32 on the device, and in main memory for exchanges."""

from __future__ import annotations

import torch
from torch import Tensor


class Flat:
    """Values and gradient of all tensors that travel, each as one vector of f32.

    A tensor of f32 is a view of the vector. One of fewer bits has its master there, and is written from it when
    values have come; its gradient is f32.
    """

    def __init__(self, elements: int, device: torch.device, staged: bool) -> None:
        #: Exchanges read and write memory apart from the model's.
        self.staged = staged or device.type != "cpu"
        self.values = torch.zeros(elements, device=device)
        self.gradient = torch.zeros(elements, device=device)
        #: In main memory: what exchanges read and write, of values the rank's own slice.
        self.host_values, self.host_gradient = self.values, self.gradient
        self._beside: torch.cuda.Stream | None = None
        if self.staged:
            locked = device.type == "cuda"
            self.host_values = torch.zeros(elements, pin_memory=locked)
            self.host_gradient = torch.zeros(elements, pin_memory=locked)
            self._beside = torch.cuda.Stream(device) if locked else None
        self._narrow: list[Tensor] = []
        self._masters: list[Tensor] = []

    def place(self, tensor: Tensor, begin: int) -> Tensor:
        """From here on the tensor's values lie behind `begin`. Returns the place of its gradient, of its shape."""
        at = slice(begin, begin + tensor.numel())
        view = self.values[at].view(tensor.shape)
        view.copy_(tensor.detach())
        if tensor.dtype == torch.float32:
            tensor.data = view
        else:
            tensor.grad_dtype = torch.float32
            self._narrow.append(tensor)
            self._masters.append(view)
        return self.gradient[at].view(tensor.shape)

    def bring(self) -> None:
        """Brings the model's own values to main memory."""
        if self.staged:
            self.host_values.copy_(self.values)

    def leave(self, part: slice) -> None:
        """This part of the gradient is final: brings it to main memory, while the device computes on."""
        if not self.staged:
            return
        if self._beside is None:
            self.host_gradient[part].copy_(self.gradient[part])
            return
        self._beside.wait_stream(torch.cuda.current_stream(self.gradient.device))
        with torch.cuda.stream(self._beside):
            self.host_gradient[part].copy_(self.gradient[part], non_blocking=True)

    def left(self) -> None:
        """Waits until main memory has what was to be brought there."""
        if self._beside is not None:
            self._beside.synchronize()

    def arrived(self, part: slice) -> None:
        """In main memory this part of the values is fresh: brings it to the model."""
        if self.staged:
            self.values[part].copy_(self.host_values[part], non_blocking=True)

    @torch.no_grad()
    def spread(self) -> None:
        """The vector's values are fresh: tensors of fewer bits get them."""
        if self._narrow:
            torch._foreach_copy_(self._narrow, self._masters)
