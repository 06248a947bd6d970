// SPDX-License-Identifier: Apache-2.0
// Leaf pages of SQLite tables of numbers (sqlite.org/fileformat2.html), as src/stepscope/render/sqlite_pages.py describes them.
#include <algorithm>
#include <cstring>

#include "surface.h"

namespace codec {
namespace {

constexpr int PAGE = 65536;
constexpr int HEADER = 8;
constexpr int MOST_COLUMNS = 64;  // more would need longer headers of records

struct Column {
  int32_t is_real;
  int32_t unused;
  const void* values;  // eight bytes each; none when all are null
  const uint8_t* valid;
  int64_t valid_offset;
};

struct Stored {
  uint8_t serial;
  uint8_t width;
};

int varint_width(uint64_t value) {
  int bits = value ? 64 - __builtin_clzll(value) : 0;
  return std::max(1, (bits + 6) / 7);
}

// Seven bits a byte, most significant first, the top bit set on all but the last.
inline uint8_t* put_varint(uint8_t* p, uint64_t value, int width) {
  for (int byte = 0; byte < width; byte++)
    p[byte] = ((value >> (7 * (width - 1 - byte))) & 0x7f) | (byte < width - 1 ? 0x80 : 0);
  return p + width;
}

inline int64_t whole(const Column& column, int64_t row) {
  return static_cast<const int64_t*>(column.values)[row];
}

// The narrowest form that fits all values of the rows.
Stored storage(const Column& column, int64_t start, int64_t stop, bool& some_null) {
  if (!column.values)
    return {0, 0};
  int64_t low = INT64_MAX, high = INT64_MIN, present = 0;
  if (!column.valid) {
    present = stop - start;
    if (!column.is_real) {
      for (int64_t row = start; row < stop; row++) {
        low = std::min(low, whole(column, row));
        high = std::max(high, whole(column, row));
      }
    }
  }
  for (int64_t row = start; column.valid && row < stop; row++) {
    if (!has_value(column.valid, column.valid_offset, row))
      continue;
    present++;
    if (!column.is_real) {
      low = std::min(low, whole(column, row));
      high = std::max(high, whole(column, row));
    }
  }
  if (!present)
    return {0, 0};
  some_null |= present < stop - start;
  if (column.is_real)
    return {7, 8};
  if (low == high && (low == 0 || low == 1))
    return {static_cast<uint8_t>(8 + low), 0};
  if (low >= INT8_MIN && high <= INT8_MAX)
    return {1, 1};
  if (low >= INT16_MIN && high <= INT16_MAX)
    return {2, 2};
  if (low >= INT32_MIN && high <= INT32_MAX)
    return {4, 4};
  return {6, 8};
}

inline uint8_t* put_value(uint8_t* p, const Column& column, int64_t row, int width) {
  uint64_t value;
  memcpy(&value, static_cast<const char*>(column.values) + 8 * row, 8);
  // Each width has its own branch: a copy of unknown length would be a call.
  if (width == 8) {
    value = __builtin_bswap64(value);
    memcpy(p, &value, 8);
  } else if (width == 4) {
    uint32_t low = __builtin_bswap32(static_cast<uint32_t>(value));
    memcpy(p, &low, 4);
  } else if (width == 2) {
    uint16_t low = __builtin_bswap16(static_cast<uint16_t>(value));
    memcpy(p, &low, 2);
  } else {
    *p = static_cast<uint8_t>(value);
  }
  return p + width;
}

}  // namespace

CODEC_FUNCTION int64_t column_size() {
  return sizeof(Column);
}

// Rows `start` to `stop` as full pages; returns their number, or -1 when `most_pages` are too few or there are too many columns.
// `ends` receives for each page how many of the rows are written when it ends. `row_numbers` may be null: then rows count from 1.
CODEC_FUNCTION int64_t write_leaves(const Column* columns, int32_t count, const int64_t* row_numbers, int64_t start, int64_t stop,
                                    int64_t last_number, uint8_t* out, int64_t most_pages, int64_t* ends) {
  if (count < 1 || count > MOST_COLUMNS)
    return -1;
  Stored stored[MOST_COLUMNS];
  bool some_null = false;
  int longest = 1 + count;
  for (int at = 0; at < count; at++) {
    stored[at] = storage(columns[at], start, stop, some_null);
    longest += stored[at].width;
  }
  // All rows of a block have lengths of one width, though the record of a row with nulls is shorter.
  int length_bytes = varint_width(longest), number_bytes = varint_width(last_number);
  static thread_local uint16_t records[PAGE / 4];
  // What all rows without nulls begin with, but for their number; and the columns that take bytes behind it.
  uint8_t prefix[MOST_COLUMNS + 32], wide[MOST_COLUMNS];
  int before_serials = length_bytes + number_bytes + 1, prefix_bytes = before_serials + count, wide_count = 0;
  put_varint(prefix, longest, length_bytes);
  prefix[before_serials - 1] = static_cast<uint8_t>(1 + count);
  for (int at = 0; at < count; at++) {
    prefix[before_serials + at] = stored[at].serial;
    if (stored[at].width)
      wide[wide_count++] = at;
  }
  int64_t row = start, pages = 0;
  while (row < stop) {
    if (pages >= most_pages)
      return -1;
    uint8_t* page = out + pages * PAGE;
    int filled = 0, cells = 0;
    while (row + cells < stop) {
      int record = longest;
      if (some_null)
        for (int at = 0; at < count; at++)
          if (stored[at].width && !has_value(columns[at].valid, columns[at].valid_offset, row + cells))
            record -= stored[at].width;
      int length = record + length_bytes + number_bytes;
      if (filled + length + 2 * (cells + 1) > PAGE - HEADER)
        break;
      records[cells++] = record;
      filled += length;
    }
    int content = PAGE - filled;
    const uint8_t header[HEADER] = {0x0d,
                                    0,
                                    0,
                                    static_cast<uint8_t>(cells >> 8),
                                    static_cast<uint8_t>(cells),
                                    static_cast<uint8_t>(content >> 8),
                                    static_cast<uint8_t>(content),
                                    0};
    memcpy(page, header, HEADER);
    uint8_t* pointer = page + HEADER;
    uint8_t* p = page + content;
    memset(pointer + 2 * cells, 0, content - HEADER - 2 * cells);
    for (int cell = 0; cell < cells; cell++) {
      int64_t at_row = row + cell;
      int place = static_cast<int>(p - page);
      *pointer++ = static_cast<uint8_t>(place >> 8);
      *pointer++ = static_cast<uint8_t>(place);
      memcpy(p, prefix, prefix_bytes);
      put_varint(p + length_bytes, row_numbers ? row_numbers[at_row] : at_row + 1, number_bytes);
      uint8_t* serials = p + before_serials;
      if (records[cell] != longest)
        put_varint(p, records[cell], length_bytes);
      if (some_null)
        for (int at = 0; at < count; at++)
          if (!has_value(columns[at].valid, columns[at].valid_offset, at_row))
            serials[at] = 0;
      p += prefix_bytes;
      for (int at = 0; at < wide_count; at++) {
        const Column& column = columns[wide[at]];
        if (!some_null || serials[wide[at]])
          p = put_value(p, column, at_row, stored[wide[at]].width);
      }
    }
    row += cells;
    ends[pages++] = row - start;
  }
  return pages;
}

}  // namespace codec
