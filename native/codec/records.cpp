// SPDX-License-Identifier: Apache-2.0
// Records of type, length and payload to columns, as src/stepscope/formats/framework/tlv.py describes them. No byte of a file is
// trusted: every length is checked against the end of its record, and every record against the end of the data.
#include <cstring>

#include "surface.h"

namespace codec {
namespace {

constexpr int64_t HEAD = 6;  // type: two bytes, length: four
constexpr int64_t INLINE = 12;  // a view holds texts up to this length itself
constexpr int64_t STEP = INT64_C(1) << 30;  // the buffers of views begin at every GiB

// Layout as in src/stepscope/formats/framework/codec_records.py.
struct Number {
  int32_t offset;  // in the fixed part
  int32_t width;  // one or eight bytes
  void* values;
};

struct Text {
  int32_t field;
  int32_t first_place;  // among the fields of a record, where it was met first; -1: nowhere
  uint8_t* views;  // sixteen bytes a row
  uint8_t* present;  // a byte a row
  int64_t met;  // records that have it
  int64_t shown;  // those whose text can be shown
};

template <class T>
T load(const uint8_t* at) {
  T value;
  memcpy(&value, at, sizeof value);
  return value;
}

// A view of an Arrow array of binary views: length, then the text itself or its first bytes, its buffer and its place there.
void put_view(uint8_t* view, const uint8_t* data, int64_t offset, int64_t length) {
  uint32_t parts[4] = {static_cast<uint32_t>(length), 0, 0, 0};
  if (length <= INLINE) {
    if (length)
      memcpy(parts + 1, data + offset, length);
  } else {
    memcpy(parts + 1, data + offset, 4);
    parts[2] = static_cast<uint32_t>(offset / STEP);
    parts[3] = static_cast<uint32_t>(offset % STEP);
  }
  memcpy(view, parts, sizeof parts);
}

// Finds the wanted fields between `at` and `stop`, of a field met twice the last one; whether something was cut off.
bool read_fields(const uint8_t* data, int64_t at, int64_t stop, Text* texts, int32_t count, int64_t row) {
  for (int32_t place = 0; at + HEAD <= stop; place++) {
    int32_t field = load<uint16_t>(data + at);
    int64_t length = load<uint32_t>(data + at + 2);
    at += HEAD;
    if (length > stop - at)
      return true;
    for (Text* text = texts; text < texts + count; text++) {
      if (text->field != field)
        continue;
      bool fits = length <= STEP;
      uint8_t& present = text->present[row];
      // 2: there, but too long to be shown.
      text->met += present == 0;
      text->shown += fits - (present == 1);
      present = fits ? 1 : 2;
      put_view(text->views + 16 * row, data, fits ? at : 0, fits ? length : 0);
      if (text->first_place < 0 || place < text->first_place)
        text->first_place = place;
      break;
    }
    at += length;
  }
  return at < stop;
}

}  // namespace

CODEC_FUNCTION int64_t number_size() {
  return sizeof(Number);
}

CODEC_FUNCTION int64_t text_size() {
  return sizeof(Text);
}

// Where whole records start, following their lengths from the start; returns their number, or -1 when there are more than `most`.
CODEC_FUNCTION int64_t find_records(const uint8_t* data, int64_t size, int64_t* starts, int64_t most) {
  int64_t count = 0;
  for (int64_t at = 0; size - at >= HEAD; count++) {
    int64_t length = load<uint32_t>(data + at + 2);
    if (length > size - at - HEAD)
      break;
    if (count >= most)
      return -1;
    starts[count] = at;
    at += HEAD + length;
  }
  return count;
}

// Fixed parts and text fields of records whose payloads begin at `begins`; without those the records are `stride` bytes apart.
// `torn` gets a byte for each record with a field that runs past its end. Views and marks must be zero, and there must be as many
// as rows. Returns the rows, or -1 when a record does not lie inside the data or is shorter than its fixed part.
CODEC_FUNCTION int64_t read_records(const uint8_t* data, int64_t size, const int64_t* begins, const int64_t* lengths,
                                    int64_t stride, int64_t rows, int64_t fixed, const Number* numbers, int32_t number_count,
                                    Text* texts, int32_t text_count, uint8_t* torn) {
  for (const Number* number = numbers; number < numbers + number_count; number++)
    if ((number->width != 1 && number->width != 8) || number->offset < 0 || number->offset + number->width > fixed)
      return -1;
  for (int64_t row = 0; row < rows; row++) {
    int64_t begin = begins ? begins[row] : row * stride;
    int64_t length = lengths ? lengths[row] : fixed;
    if (begin < 0 || length < fixed || begin > size || length > size - begin)
      return -1;
    const uint8_t* payload = data + begin;
    for (const Number* number = numbers; number < numbers + number_count; number++) {
      if (number->width == 8)
        static_cast<uint64_t*>(number->values)[row] = load<uint64_t>(payload + number->offset);
      else
        static_cast<uint8_t*>(number->values)[row] = payload[number->offset];
    }
    if (text_count)
      torn[row] = read_fields(data, begin + fixed, begin + length, texts, text_count, row);
  }
  return rows;
}

}  // namespace codec
