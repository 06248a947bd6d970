// SPDX-License-Identifier: Apache-2.0
// What torch asks of an accelerator: its devices, streams, events, pinned memory and generators.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceCapability.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstring>

#include "runtime/allocator.h"
#include "runtime/generator.h"
#include "runtime/runtime.h"

namespace simnpu {
namespace {

c10::Device npu(int number) {
  return c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(number));
}

c10::Stream torch_stream(int device, int64_t number) {
  return c10::Stream(c10::Stream::UNSAFE, npu(device), number);
}

Stream& stream_of(const c10::Stream& stream) {
  return device(stream.device_index()).stream(stream.id());
}

int index_or_current(c10::Device device) {
  return device.index() < 0 ? current_device() : device.index();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = c10::kPrivateUse1;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override {
    return static_type;
  }
  c10::Device exchangeDevice(c10::Device wanted) const override {
    const int old = current_device();
    setDevice(wanted);
    return npu(old);
  }
  c10::Device getDevice() const override {
    return npu(current_device());
  }
  void setDevice(c10::Device wanted) const override {
    if (wanted.index() >= 0 && wanted.index() != current_device())
      set_current_device(wanted.index());
  }
  void uncheckedSetDevice(c10::Device wanted) const noexcept override {
    if (wanted.index() >= 0 && wanted.index() < device_count())
      set_current_device(wanted.index());
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    return c10::DeviceCapability();
  }

  c10::Stream getStream(c10::Device on) const override {
    const int number = index_or_current(on);
    return torch_stream(number, current_stream_number(number));
  }
  c10::Stream getDefaultStream(c10::Device on) const override {
    return torch_stream(index_or_current(on), 0);
  }
  c10::Stream getNewStream(c10::Device on, int = 0) const override {
    const int number = index_or_current(on);
    return torch_stream(number, device(number).new_stream());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device on, bool = false) const override {
    return getNewStream(on);
  }
  c10::Stream exchangeStream(c10::Stream wanted) const override {
    const int number = wanted.device_index();
    const int64_t old = current_stream_number(number);
    set_current_stream(number, wanted.id());
    return torch_stream(number, old);
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return &stream_of(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return stream_of(stream).idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    stream_of(stream).synchronize();
  }
  bool isStreamCapturing(const c10::Stream&) const override {
    return false;
  }
  void synchronizeDevice(const c10::DeviceIndex number) const override {
    device(number < 0 ? current_device() : number).synchronize();
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    device_allocator().recordStream(data, stream);
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event)
      *event = new Event;
    static_cast<Event*>(*event)->record(stream_of(stream));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event)
      static_cast<Event*>(event)->block(stream_of(stream));
  }
  bool queryEvent(void* event) const override {
    return !event || static_cast<Event*>(event)->query();
  }
  void synchronizeEvent(void* event) const override {
    if (event)
      static_cast<Event*>(event)->synchronize();
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "both events must be recorded before the time between them is asked for");
    const int64_t from = static_cast<Event*>(start)->time_ns();
    return static_cast<double>(static_cast<Event*>(end)->time_ns() - from) / 1e6;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex number) const override {
    set_current_device(number);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex number) const override {
    const int old = current_device();
    if (number >= 0)
      set_current_device(number);
    return static_cast<c10::DeviceIndex>(old);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex number) const override {
    return exchangeDevice(number < device_count() ? number : -1);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return &pinned_allocator();
  }
  bool isPinnedPtr(const void* address) const override {
    return is_pinned(address);
  }
  at::Device getDeviceFromPtr(void*) const override {
    return npu(current_device());
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex number) const override {
    return default_generator(number);
  }
  at::Generator getNewGenerator(c10::DeviceIndex number) const override {
    return new_generator(number);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    c10::DeviceGuard on(storage.device());
    c10::DataPtr grown = device_allocator().allocate(bytes);
    if (size_t kept = std::min(bytes, storage.nbytes())) {
      device(storage.device().index()).synchronize();
      memcpy(grown.get(), storage.data(), kept);
    }
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(grown));
    storage.unsafeGetStorageImpl()->set_nbytes(bytes);
  }
};

[[maybe_unused]] const bool registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace
}  // namespace simnpu
