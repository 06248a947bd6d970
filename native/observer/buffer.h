// SPDX-License-Identifier: Apache-2.0
// Bytes on their way to a file; grows, never shrinks, never clears what it is about to overwrite.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace observer {

class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    free(data_);
  }

  // Room for `bytes` more, which the caller fills.
  char* claim(size_t bytes) {
    if (__builtin_expect(size_ + bytes > capacity_, 0))
      grow(size_ + bytes);
    char* place = data_ + size_;
    size_ += bytes;
    return place;
  }

  void append(const char* bytes, size_t length) {
    memcpy(claim(length), bytes, length);
  }
  void append(const std::string& text) {
    append(text.data(), text.size());
  }
  void append(char c) {
    *claim(1) = c;
  }
  template <class T>
  void put(const T& value) {
    memcpy(claim(sizeof value), &value, sizeof value);
  }

  // An inner field whose length is known only afterwards (framework-raw.md 3.1): begin, append, end.
  size_t begin_field(uint16_t id) {
    put(id);
    put(uint32_t{0});
    return size_;
  }
  void end_field(size_t begin) {
    uint32_t length = static_cast<uint32_t>(size_ - begin);
    memcpy(data_ + begin - 4, &length, 4);
  }
  void field(uint16_t id, const char* text, size_t length) {
    put(id);
    put(static_cast<uint32_t>(length));
    append(text, length);
  }

  // As printf's %#llx
  void append_hex(uint64_t value) {
    if (!value) {
      append('0');
      return;
    }
    static const char digits[] = "0123456789abcdef";
    size_t count = static_cast<size_t>(67 - __builtin_clzll(value)) / 4;
    char* place = claim(count + 2);
    place[0] = '0';
    place[1] = 'x';
    for (size_t i = count + 1; i > 1; i--, value >>= 4)
      place[i] = digits[value & 15];
  }

  char* data() {
    return data_;
  }
  size_t size() const {
    return size_;
  }
  void shorten(size_t bytes) {
    size_ -= bytes;
  }
  void clear() {
    size_ = 0;
  }

 private:
  void grow(size_t needed) {
    size_t capacity = needed * 2 < 4096 ? 4096 : needed * 2;
    char* data = static_cast<char*>(realloc(data_, capacity));
    if (!data)
      throw std::bad_alloc();
    data_ = data;
    capacity_ = capacity;
  }

  char* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
};

// What is not UTF-8 becomes `?`; the files promise UTF-8, and names come from anywhere.
inline void make_utf8(char* text, size_t length) {
  size_t i = 0;
  while (i < length && static_cast<unsigned char>(text[i]) < 0x80)
    i++;
  while (i < length) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    size_t more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 9;
    bool good = more < 9 && i + more < length;
    for (size_t k = 1; good && k <= more; k++) {
      unsigned char next = static_cast<unsigned char>(text[i + k]);
      unsigned char low = k > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
      unsigned char high = k > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
      good = next >= low && next <= high;
    }
    if (!good) {
      text[i] = '?';
      more = 0;
    }
    i += more + 1;
  }
}

}  // namespace observer
