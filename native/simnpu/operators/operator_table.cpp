// SPDX-License-Identifier: Apache-2.0
// Which operators there are, and which of them become operators of the device.
#include "operators/operator_table.h"

#include <torch/library.h>

#include <unordered_set>

#include "runtime/tensor_ref.h"

namespace simnpu {

using c10::OperatorHandle;

namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// Written by hand in tensors.cpp, or made of other operators on purpose.
const std::unordered_set<std::string>& not_registered() {
  static const auto* names = new std::unordered_set<std::string>{"aten::empty.memory_format",
                                                                 "aten::empty_strided",
                                                                 "aten::_copy_from",
                                                                 "aten::_copy_from_and_resize",
                                                                 "aten::_local_scalar_dense",
                                                                 "aten::as_strided",
                                                                 "aten::view",
                                                                 "aten::_reshape_alias",
                                                                 "aten::unfold",
                                                                 "aten::view_as_real",
                                                                 "aten::view_as_complex",
                                                                 "aten::resize_",
                                                                 "aten::set_",
                                                                 "aten::set_.source_Storage",
                                                                 "aten::set_.source_Storage_storage_offset",
                                                                 "aten::set_.source_Tensor",
                                                                 "aten::record_stream",
                                                                 "aten::_fused_sdp_choice",
                                                                 "aten::copy_",
                                                                 "aten::_has_same_storage_numel",
                                                                 "aten::is_set_to"};
  return *names;
}

bool becomes_npu_operator(const OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.name.rfind("aten::", 0) != 0 || not_registered().count(c10::toString(name)))
    return false;
  for (const auto& result : op.schema().returns())
    if (result.alias_info() && !result.alias_info()->isWrite())
      return false;  // a view
  if (op.hasTag(at::Tag::inplace_view))
    return false;
  if (name.name.rfind("aten::_foreach_", 0) == 0)  // one kernel for the whole list, as on hardware
    return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  static const std::unordered_set<std::string> one_kernel_on_hardware = {"aten::embedding"};
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || own_kernel(c10::toString(name)) ||
         one_kernel_on_hardware.count(c10::toString(name));
}

}  // namespace

Operator::Operator(const OperatorHandle& handle) : handle(handle), name(c10::toString(handle.operator_name())) {
  const auto& schema = handle.schema();
  arguments = schema.arguments().size();
  own = own_kernel(name);
  always_waits = handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output) ||
                 contains(name, "_ctc_loss");  // as long as the longest target, which no tag says
  takes_host_tensors = contains(name, "aten::index") || contains(name, "_index_put") || contains(name, "_unsafe_index");
  if (contains(name, "index.Tensor")) {
    always_waits = false;
    waits_for_masks = true;
  }
  for (size_t i = 0; i < arguments; i++) {
    const auto& argument = schema.arguments()[i];
    const std::string type = argument.type()->str();
    is_written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    is_generator.push_back(contains(type, "Generator"));
    is_number.push_back(contains(type, "Scalar") || contains(type, "number") || contains(type, "float"));
    if (argument.is_out())
      out_arguments.push_back(static_cast<int>(i));
    else if (contains(type, "Tensor"))
      has_tensor_arguments = true;
  }
  for (const auto& result : schema.returns()) {
    int alias = -1;
    for (size_t i = 0; result.alias_info() && i < arguments; i++) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info && info->isWrite() && info->beforeSets() == result.alias_info()->beforeSets())
        alias = static_cast<int>(i);
    }
    const std::string type = result.type()->str();
    alias_of.push_back(alias);
    returned.push_back(type == "Tensor" || type == "Tensor?" ? Returned::tensor
                       : type == "Tensor[]"                  ? Returned::tensors
                                                             : Returned::other);
    always_waits |= returned.back() == Returned::other;
    makes_tensors |= alias < 0;
  }
  if (makes_tensors && !always_waits && !own && out_arguments.empty())
    find_out_variant();
}

void Operator::find_out_variant() {
  static const auto* by_name = [] {
    auto* names = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const auto& op : c10::Dispatcher::singleton().getAllOpNames())
      if (contains(op.overload_name, "out"))
        (*names)[op.name].push_back(op);
    return names;
  }();
  if (std::any_of(returned.begin(), returned.end(), [](Returned r) { return r != Returned::tensor; }))
    return;
  const auto& schema = handle.schema();
  auto found = by_name->find(schema.name());
  // A loss that is reduced afterwards uses its output for what comes before, which is larger.
  if (found == by_name->end() || schema.argumentIndexWithName("reduction"))
    return;
  for (const auto& candidate_name : found->second) {
    auto candidate = c10::Dispatcher::singleton().findSchema(candidate_name);
    if (!candidate || !candidate->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      continue;
    const auto& theirs = candidate->schema().arguments();
    if (theirs.size() != arguments + schema.returns().size())
      continue;
    bool same = true;
    for (size_t i = 0; same && i < theirs.size(); i++)
      same = i < arguments ? !theirs[i].is_out() && theirs[i].name() == schema.arguments()[i].name() &&
                                 *theirs[i].type() == *schema.arguments()[i].type()
                           : theirs[i].is_out();
    if (same) {
      out_variant = *candidate;
      return;
    }
  }
}

Operator& operator_of(const OperatorHandle& handle) {
  static thread_local std::unordered_map<const void*, Operator*> seen;
  const void* key = &handle.schema();
  if (auto found = seen.find(key); C10_LIKELY(found != seen.end()))
    return *found->second;
  static std::mutex mutex;
  static auto* all = new std::unordered_map<const void*, std::unique_ptr<Operator>>;
  std::lock_guard lock(mutex);
  auto& op = (*all)[key];
  if (!op)
    op = std::make_unique<Operator>(handle);
  return *(seen[key] = op.get());
}

int64_t register_operators() {
  static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__,
                                            static_cast<uint32_t>(__LINE__));
  static int64_t registered = [] {
    int64_t count = 0;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      auto op = dispatcher.findSchema(name);
      if (!op || !becomes_npu_operator(*op))
        continue;
      std::string text = name.name.substr(sizeof("aten::") - 1);
      if (!name.overload_name.empty())
        text += "." + name.overload_name;
      library->impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
      count++;
    }
    return count;
  }();
  return registered;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

}  // namespace simnpu
