// SPDX-License-Identifier: Apache-2.0
// A device tensor as a task holds it: an address and a layout. It owns nothing, so a tensor freed by the host is
// freed at once, and its memory is used again in the order of the stream, as on hardware.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace simnpu {

using Dims = c10::SmallVector<int64_t, 5>;

struct Layout {
  Dims sizes;
  Dims strides;
  at::ScalarType dtype = at::ScalarType::Float;
  bool defined = false;
};

struct TensorRef : Layout {
  void* data = nullptr;
  bool conjugate = false;
  bool negative = false;
};

Layout layout_of(const at::Tensor& tensor);
TensorRef ref_of(const at::Tensor& tensor);
at::Tensor cpu_view(const TensorRef& ref);  // a CPU tensor over the same bytes
at::Tensor empty_npu(const Layout& layout);  // on the current device

// Kernel of every operator that is not written by hand.
void run_operator(const c10::OperatorHandle& op, std::vector<c10::IValue>* stack);

}  // namespace simnpu
