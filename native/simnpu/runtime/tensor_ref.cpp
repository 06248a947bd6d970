// SPDX-License-Identifier: Apache-2.0
#include "runtime/tensor_ref.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/TensorImpl.h>

#include "runtime/allocator.h"

namespace simnpu {

Layout layout_of(const at::Tensor& tensor) {
  Layout layout;
  if (tensor.defined()) {
    layout.defined = true;
    layout.dtype = tensor.scalar_type();
    layout.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
    layout.strides.assign(tensor.strides().begin(), tensor.strides().end());
  }
  return layout;
}

TensorRef ref_of(const at::Tensor& tensor) {
  TensorRef ref;
  if (tensor.defined()) {
    static_cast<Layout&>(ref) = layout_of(tensor);
    ref.data = tensor.numel() ? const_cast<void*>(tensor.const_data_ptr()) : nullptr;
    ref.conjugate = tensor.is_conj();
    ref.negative = tensor.is_neg();
  }
  return ref;
}

at::Tensor cpu_view(const TensorRef& ref) {
  if (!ref.defined)
    return at::Tensor();
  int64_t reach = 1;
  for (size_t i = 0; i < ref.sizes.size(); i++)
    reach = ref.sizes[i] == 0 ? INT64_MIN / 2 : reach + (ref.sizes[i] - 1) * ref.strides[i];
  const size_t bytes = reach > 0 ? static_cast<size_t>(reach) * c10::elementSize(ref.dtype) : 0;
  // Not resizable: a kernel that wants another size fails instead of writing elsewhere.
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(ref.data, c10::Device(c10::kCPU)), nullptr, false);
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                             c10::scalarTypeToTypeMeta(ref.dtype));
  view.unsafeGetTensorImpl()->set_sizes_and_strides(ref.sizes, ref.strides);
  if (ref.conjugate)
    view.unsafeGetTensorImpl()->_set_conj(true);
  if (ref.negative)
    view.unsafeGetTensorImpl()->_set_neg(true);
  return view;
}

at::Tensor empty_npu(const Layout& layout) {
  if (!layout.defined)
    return at::Tensor();
  return at::detail::empty_strided_generic(layout.sizes, layout.strides, &device_allocator(),
                                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), layout.dtype);
}

}  // namespace simnpu
