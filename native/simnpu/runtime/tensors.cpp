// SPDX-License-Identifier: Apache-2.0
// Operators that are about memory and not about values: factories, views, copies.
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cstring>
#include <string>
#include <unordered_map>

#include "operators/kernels.h"
#include "runtime/allocator.h"
#include "runtime/runtime.h"
#include "runtime/tensor_ref.h"

namespace simnpu {
namespace {

using c10::IntArrayRef;
constexpr c10::DispatchKeySet kNpu(c10::DispatchKey::PrivateUse1);
// The model of time for copies that leave a device.
constexpr double kCopyFixedNs = 5000, kCopyBytesPerNs = 25;

at::Tensor empty(IntArrayRef sizes, std::optional<at::ScalarType> dtype, std::optional<at::Layout>, std::optional<at::Device> on,
                 std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(on));
  return at::detail::empty_generic(sizes, &device_allocator(), kNpu, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> on, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(on));
  return at::detail::empty_strided_generic(sizes, strides, &device_allocator(), kNpu, c10::dtype_or_default(dtype));
}

// --------------------------------------------------------------------------------------------------------- copies

// On one device a copy is a kernel; its name tells a move from a cast and from a change of layout.
void set_kernel(TaskRecord& record, const at::Tensor& from, const at::Tensor& to) {
  record.kind = TaskKind::kernel;
  if (!timing() && settings().kernel_time <= 0)
    return;
  const char* op = from.scalar_type() != to.scalar_type()       ? "copy_cast"
                   : from.is_contiguous() && to.is_contiguous() ? "copy"
                                                                : "copy_strided";
  static thread_local std::unordered_map<std::string, std::pair<uint32_t, Model>> known;
  KernelCall call{op, false, {layout_of(from)}, {layout_of(to)}};
  std::string key = op;
  for (const Layout& layout : {call.inputs[0], call.outputs[0]}) {
    key += static_cast<char>(layout.dtype);
    key.append(reinterpret_cast<const char*>(layout.sizes.data()), layout.sizes.size() * sizeof(int64_t));
  }
  auto& [number, model] = known[key];
  if (!number) {
    call.op = "aten::" + call.op;
    number = describe(call, &model);
  }
  record.description = number;
  record.modelled_ns = static_cast<int64_t>(static_cast<double>(model.duration_ns) * settings().kernel_time);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  const int64_t called = timing() ? now_ns() : 0;
  const bool from_npu = self.is_privateuseone(), to_npu = dst.is_privateuseone();
  const c10::Device on = to_npu ? dst.device() : self.device();
  const c10::DeviceGuard guard(on);
  Stream& stream = current_stream(on.index());
  if (from_npu && to_npu && self.device() != dst.device()) {
    Event ready;
    ready.record(current_stream(self.device().index()));
    ready.block(stream);
  }
  // From memory that may change or go away at once: copied first, unless the host waits.
  const bool staged = !from_npu && non_blocking && !is_pinned(self.storage().data());
  const at::Tensor source = staged ? self.clone() : self;
  c10::Storage alive_source, alive_target;  // of host memory only
  if (!from_npu)
    alive_source = source.storage();
  if (!to_npu)
    alive_target = dst.storage();
  auto task = make_task(
      "copy",
      from_npu && to_npu ? TaskKind::copy_d2d
      : from_npu         ? TaskKind::copy_d2h
                         : TaskKind::copy_h2d,
      [from = ref_of(source), to = ref_of(dst), alive_source, alive_target] { cpu_view(to).copy_(cpu_view(from)); });
  task->record.bytes = dst.nbytes();
  const bool within = from_npu && to_npu && self.device() == dst.device();
  if (within)
    set_kernel(task->record, self, dst);
  else if (settings().kernel_time > 0)
    task->record.modelled_ns = static_cast<int64_t>((kCopyFixedNs + static_cast<double>(dst.nbytes()) / kCopyBytesPerNs) *
                                                    settings().kernel_time);
  const uint64_t ticket = stream.submit(std::move(task), called);
  if (from_npu && to_npu && !within) {  // the source must not be used again before it was read
    Event read;
    read.record(stream);
    read.block(current_stream(self.device().index()));
  }
  const bool host_waits = from_npu != to_npu && (!non_blocking || (from_npu && !is_pinned(dst.storage().data())));
  if (host_waits)
    stream.synchronize(ticket);
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, false);
}

at::Scalar local_scalar(const at::Tensor& self) {
  const int64_t called = timing() ? now_ns() : 0;
  Stream& stream = current_stream(self.device().index());
  alignas(16) char bytes[16];
  const TensorRef from = ref_of(self);
  auto task = make_task("item", TaskKind::copy_d2h, [&bytes, &from] { memcpy(bytes, from.data, c10::elementSize(from.dtype)); });
  task->record.bytes = self.nbytes();
  task->record.flags |= kTaskAwaited;
  stream.synchronize(stream.submit(std::move(task), called));
  TensorRef on_host = from;
  on_host.data = bytes;
  return cpu_view(on_host).item();
}

// ---------------------------------------------------------------------------------------------- views and storages

at::Tensor as_strided(const at::Tensor& self, IntArrayRef sizes, IntArrayRef strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

const at::Tensor& resize_(const at::Tensor& self, IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_sizes_contiguous(sizes);
  const size_t bytes = at::detail::computeStorageNbytesContiguous(sizes, self.dtype().itemsize(),
                                                                  static_cast<size_t>(tensor->storage_offset()));
  if (bytes > tensor->storage().nbytes())
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(tensor->storage(), bytes);
  if (format)
    tensor->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage_part(at::Tensor& self, at::Storage storage, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  auto* tensor = self.unsafeGetTensorImpl();
  tensor->set_storage_and_dtype(std::move(storage), self.dtype());
  tensor->set_storage_offset(offset);
  if (strides.data())
    tensor->set_sizes_and_strides(sizes, strides);
  else
    tensor->set_sizes_contiguous(sizes);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage storage) {
  const auto count = static_cast<int64_t>(storage.nbytes() / self.dtype().itemsize());
  return set_storage_part(self, std::move(storage), 0, {count}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage_part(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, device_allocator().allocate(0), &device_allocator(), true);
  return set_storage_part(self, std::move(none), 0, {0}, {});
}

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() && self.strides() == other.strides();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  device_allocator().recordStream(self.storage().data_ptr(), stream);
}

// The CPU's own choice: its fused kernel is then one kernel here too, and the results are the same.
int64_t attention_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                         bool grouped) {
  auto like = [](const at::Tensor& tensor) {
    return cpu_view(ref_of(tensor)).set_requires_grad(tensor.is_floating_point() && tensor.requires_grad());
  };
  std::optional<at::Tensor> cpu_mask;
  if (mask && mask->defined())
    cpu_mask = like(*mask);
  return at::_fused_sdp_choice(like(query), like(key), like(value), cpu_mask, dropout, causal, scale, grouped);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar);
  m.impl("as_strided", &as_strided);
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", &resize_);
  m.impl("set_.source_Storage_storage_offset", &set_storage_part);
  m.impl("set_.source_Storage", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("is_set_to", &is_set_to);
  m.impl("record_stream", &record_stream);
  m.impl("_fused_sdp_choice", &attention_choice);
}

// A copy reads conjugated and negated tensors itself. Making them plain first would need a copy.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace simnpu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &simnpu::attention_choice);
}
