// SPDX-License-Identifier: Apache-2.0
#include "runtime/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>
#include <vector>

#include "runtime/runtime.h"

namespace simnpu {
namespace {

class DeviceGenerator final : public c10::GeneratorImpl {
 public:
  explicit DeviceGenerator(int device)
      : c10::GeneratorImpl(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device)),
                           c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu(at::make_generator<at::CPUGeneratorImpl>(c10::default_rng_seed_val)) {}

  void set_current_seed(uint64_t seed) override {
    wait_for_draws();
    cpu.set_current_seed(seed);
  }
  void set_offset(uint64_t) override {
    TORCH_CHECK(false, "generators of the simulated npu have no offset");
  }
  uint64_t get_offset() const override {
    TORCH_CHECK(false, "generators of the simulated npu have no offset");
  }
  uint64_t current_seed() const override {
    return cpu.current_seed();
  }
  uint64_t seed() override {
    wait_for_draws();
    return cpu.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    wait_for_draws();
    cpu.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    wait_for_draws();
    return cpu.unsafeGetGeneratorImpl()->get_state();
  }
  static c10::DeviceType device_type() {
    return c10::kPrivateUse1;
  }

  at::Generator cpu;

 private:
  DeviceGenerator* clone_impl() const override {
    wait_for_draws();
    auto* copy = new DeviceGenerator(device().index());
    copy->cpu = cpu.clone();
    return copy;
  }
  // Kernels that were issued before draw from the old state.
  void wait_for_draws() const {
    device_of_draws().synchronize();
  }
  Device& device_of_draws() const {
    return simnpu::device(device().index());
  }
};

}  // namespace

const at::Generator& default_generator(int device) {
  static auto* all = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < device_count(); i++)
      made->push_back(new_generator(i));
    return made;
  }();
  return all->at(static_cast<size_t>(device < 0 ? current_device() : device));
}

at::Generator new_generator(int device) {
  return at::make_generator<DeviceGenerator>(device < 0 ? current_device() : device);
}

at::Generator cpu_generator_of(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == c10::kPrivateUse1, "Expected a 'npu' device type for generator but found '",
              generator.device(), "'");
  return static_cast<DeviceGenerator*>(generator.unsafeGetGeneratorImpl())->cpu;
}

}  // namespace simnpu
