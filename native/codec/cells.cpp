// SPDX-License-Identifier: Apache-2.0
// Lines of a csv file as columns, in one pass. No byte of a file is trusted; a line of an unusual form (other numbers than plain
// decimals, a cell over two lines, a quote inside a cell, other cells than titles) makes the file unfit, and the general parser
// reads it.
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "surface.h"

namespace codec {
namespace {

// Kinds and layout as in src/stepscope/formats/codec_cells.py.
enum Kind : int32_t { TEXT, COUNT, NUMBER, TIME };
constexpr int64_t UNFIT = -1, NO_MEMORY = -2;

struct Column {
  int32_t index;  // among the cells of a line
  int32_t kind;
  void* values;  // of a text: the row of its text, four bytes; else eight bytes a row
  uint8_t* present;  // a byte a row
  int64_t* texts;  // where each different text begins and its length, as it stands in the file; there is room for one a row
  int64_t count;  // of different texts
  int64_t missing;
};

constexpr int MOST_DIGITS = 18;  // a number of so many fits 64 bits
constexpr int64_t EXACT = INT64_C(1) << 53;  // doubles hold all whole numbers below
constexpr int64_t LATEST_US = (INT64_C(1) << 62) / 1000;
constexpr double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                             1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};

inline bool is_digit(uint8_t c) {
  return static_cast<uint8_t>(c - '0') < 10;
}

// What ends or spoils a cell: a separator, the end of a line, a quote, or a byte that text does not have.
struct Stops {
  bool at[256] = {};
  Stops() {
    for (int c = 0; c < 32; c++)
      at[c] = c != '\t';
    at[','] = at['"'] = true;
  }
};
const Stops STOPS;

// The different texts of a column, by open addressing.
class Texts {
 public:
  Texts(const uint8_t* data, Column& column) : data_(data), column_(column), slots_(64, -1) {}

  int32_t number(int64_t begin, int64_t length) {
    // Rows often repeat the text of the row before.
    if (last_ >= 0 && same(last_, begin, length))
      return last_;
    if (2 * column_.count >= static_cast<int64_t>(slots_.size()))
      grow();
    size_t slot = hash(begin, length) & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !same(slots_[slot], begin, length))
      slot = (slot + 1) & (slots_.size() - 1);
    if (slots_[slot] < 0) {
      slots_[slot] = static_cast<int32_t>(column_.count);
      column_.texts[2 * column_.count] = begin;
      column_.texts[2 * column_.count + 1] = length;
      column_.count++;
    }
    return last_ = slots_[slot];
  }

 private:
  bool same(int64_t text, int64_t begin, int64_t length) const {
    return column_.texts[2 * text + 1] == length && !memcmp(data_ + column_.texts[2 * text], data_ + begin, length);
  }

  uint64_t hash(int64_t begin, int64_t length) const {
    uint64_t mixed = static_cast<uint64_t>(length) * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t at = 0; at < length; at += 8) {
      uint64_t part = 0;
      memcpy(&part, data_ + begin + at, length - at < 8 ? length - at : 8);
      mixed = (mixed ^ part) * UINT64_C(0xff51afd7ed558ccd);
      mixed ^= mixed >> 32;
    }
    return mixed;
  }

  void grow() {
    std::vector<int32_t> larger(2 * slots_.size(), -1);
    for (int64_t text = 0; text < column_.count; text++) {
      size_t slot = hash(column_.texts[2 * text], column_.texts[2 * text + 1]) & (larger.size() - 1);
      while (larger[slot] >= 0)
        slot = (slot + 1) & (larger.size() - 1);
      larger[slot] = static_cast<int32_t>(text);
    }
    slots_.swap(larger);
  }

  const uint8_t* data_;
  Column& column_;
  std::vector<int32_t> slots_;
  int32_t last_ = -1;
};

class Lines {
 public:
  Lines(const uint8_t* data, int64_t size, int32_t width, Column* columns, int32_t count)
      : data_(data), end_(data + size), p_(data), of_cell_(width, nullptr) {
    for (Column* column = columns; column < columns + count; column++) {
      of_cell_[column->index] = column;
      texts_.push_back(column->kind == TEXT ? std::make_unique<Texts>(data, *column) : nullptr);
      column->missing = column->count = 0;
    }
    columns_ = columns;
  }

  int64_t read(int64_t most) {
    int64_t row = 0;
    for (; p_ < end_; row++) {
      if (row == most)
        return UNFIT;
      const size_t width = of_cell_.size();
      for (size_t index = 0; index < width; index++) {
        Column* column = of_cell_[index];
        if (!(column ? cell(*column, row) : skip()))
          return UNFIT;
        bool last = index + 1 == width;
        if (p_ == end_ ? !last : *p_ != (last ? '\n' : ','))
          return UNFIT;
        p_ += p_ < end_;
      }
    }
    return row;
  }

 private:
  // A cell from its first byte to the separator behind it.
  bool extent(int64_t& begin, int64_t& length) {
    const uint8_t* start = p_;
    begin = start - data_;
    if (p_ < end_ && *p_ == '"') {
      for (p_++;; p_++) {
        while (p_ < end_ && !STOPS.at[*p_])
          p_++;
        if (p_ == end_ || (*p_ < 32))
          return false;
        if (*p_ == ',')
          continue;
        p_++;  // a quote: the last one, or the first of two that stand for one
        if (p_ == end_ || *p_ != '"')
          break;
      }
    } else {
      while (p_ < end_ && !STOPS.at[*p_])
        p_++;
    }
    length = p_ - start;
    return true;
  }

  bool skip() {
    const uint8_t* start = p_;
    int64_t begin, length;
    if (!extent(begin, length))
      return false;
    for (; start < p_; start++)
      if (*start >= 0x80)
        return false;  // nobody would see whether it is text
    return true;
  }

  static bool is_missing(const uint8_t* text, int64_t length) {
    return length == 0 || (length == 3 && !memcmp(text, "N/A", 3));
  }

  bool cell(Column& column, int64_t row) {
    if (column.kind == TEXT)
      return text(column, row);
    const uint8_t* start = p_;
    bool negative = p_ < end_ && *p_ == '-';
    p_ += negative;
    const uint8_t* whole = p_;
    uint64_t value = 0;
    while (p_ < end_ && is_digit(*p_))
      value = 10 * value + (*p_++ - '0');
    int64_t digits = p_ - whole, places = 0;
    if (!digits) {
      p_ = start;
      int64_t begin, length;
      if (!extent(begin, length) || !is_missing(start, length))
        return false;
      column.missing++;
      column.present[row] = 0;
      static_cast<int64_t*>(column.values)[row] = 0;
      return true;
    }
    if (digits > MOST_DIGITS)
      return false;
    column.present[row] = 1;
    if (column.kind == COUNT) {
      static_cast<int64_t*>(column.values)[row] = negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
      return true;
    }
    if (column.kind == TIME)
      return !negative && time(column, row, value);
    if (p_ < end_ && *p_ == '.') {
      const uint8_t* point = ++p_;
      while (p_ < end_ && is_digit(*p_) && digits + (p_ - point) <= MOST_DIGITS)
        value = 10 * value + (*p_++ - '0');
      places = p_ - point;
    }
    // Below these limits the quotient is the double nearest to the decimal.
    if ((places == 0 && p_[-1] == '.') || digits + places > MOST_DIGITS || value > static_cast<uint64_t>(EXACT))
      return false;
    double number = static_cast<double>(value) / POWERS[places];
    static_cast<double*>(column.values)[row] = negative ? -number : number;
    return true;
  }

  // Decimal microseconds as nanoseconds; further digits are cut off.
  bool time(Column& column, int64_t row, uint64_t us) {
    uint64_t ns = 0;
    int places = 0;
    if (p_ < end_ && *p_ == '.') {
      for (p_++; p_ < end_ && is_digit(*p_); p_++, places++)
        if (places < 3)
          ns = 10 * ns + (*p_ - '0');
    }
    for (; places < 3; places++)
      ns *= 10;
    while (p_ < end_ && (*p_ == '\t' || *p_ == ' '))
      p_++;
    if (us > static_cast<uint64_t>(LATEST_US))
      return false;
    static_cast<int64_t*>(column.values)[row] = static_cast<int64_t>(1000 * us + ns);
    return true;
  }

  bool text(Column& column, int64_t row) {
    int64_t begin, length;
    if (!extent(begin, length))
      return false;
    const uint8_t* start = data_ + begin;
    bool quoted = length > 0 && *start == '"';
    if (quoted && is_missing(start + 1, length - 2))
      return false;
    bool missing = !quoted && is_missing(start, length);
    column.missing += missing;
    column.present[row] = !missing;
    static_cast<int32_t*>(column.values)[row] = missing ? 0 : texts_[&column - columns_]->number(begin, length);
    return true;
  }

  const uint8_t* data_;
  const uint8_t* end_;
  const uint8_t* p_;
  Column* columns_;
  std::vector<Column*> of_cell_;  // by its index; null where nobody wants it
  std::vector<std::unique_ptr<Texts>> texts_;
};

}  // namespace

CODEC_FUNCTION int64_t cell_column_size() {
  return sizeof(Column);
}

// The wanted columns of all lines, each of `width` cells; returns their number, UNFIT or NO_MEMORY. There must be room for `most`
// rows, fewer than 2^31.
CODEC_FUNCTION int64_t read_lines(const uint8_t* data, int64_t size, int32_t width, Column* columns, int32_t count, int64_t most) {
  // In the order of the line, each cell once.
  int32_t before = -1;
  for (const Column* column = columns; column < columns + count; before = column++->index)
    if (column->index <= before || column->index >= width || column->kind < TEXT || column->kind > TIME)
      return UNFIT;
  if (most >= INT64_C(1) << 31 || width < 1)
    return UNFIT;
  try {
    return Lines(data, size, width, columns, count).read(most);
  } catch (const std::bad_alloc&) {
    return NO_MEMORY;
  }
}

}  // namespace codec
