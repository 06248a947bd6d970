// SPDX-License-Identifier: Apache-2.0
// Feeds the writers of rows and of database pages with random columns under sanitizers: `run_codec.py` compiles it together with
// native/codec/rows.cpp and native/codec/pages.cpp.
//
//   codec_writers INPUTS SEED
//
// Every buffer is a heap block of exactly the size that the Python side reserves, and what was written is read back and compared.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

// As in native/codec/rows.cpp and pages.cpp.
struct Part {
  int32_t kind, width;
  const void* values;
  const uint8_t* valid;
  int64_t valid_offset;
  const char* text;
  int64_t text_length;
  const int64_t* begins;
  const int32_t* lengths;
  const char* missing;
  int64_t missing_length;
};
struct Column {
  int32_t is_real, unused;
  const void* values;
  const uint8_t* valid;
  int64_t valid_offset;
};
enum { LITERAL, WORD, WHOLE, THOUSANDTHS, TABBED, PLAIN, SHORTEST, PLAIN_ZERO, FLOAT, FLOAT_PLAIN_ZERO, LABEL, TEXT };

extern "C" {
int64_t part_size();
int64_t render(const Part*, int32_t, int64_t, int64_t, char*, int64_t, int64_t, int64_t*);
void mark_codes(const void*, int32_t, const uint8_t*, int64_t, int64_t, uint8_t*);
int32_t floats_fit(const double*, const uint8_t*, int64_t, int64_t);
int64_t column_size();
int64_t write_leaves(const Column*, int32_t, const int64_t*, int64_t, int64_t, int64_t, uint8_t*, int64_t, int64_t*);
}

static std::mt19937_64 chance;
static std::vector<std::unique_ptr<char[]>> blocks;
constexpr int64_t NUMBER_BYTES = 48, PAGE = 65536, MOST_THOUSANDTHS = INT64_C(1000000000000000);

static void must(bool held, const char* what) {
  if (!held) {
    fprintf(stderr, "wrong: %s\n", what);
    abort();
  }
}

// A block of its own, so that one byte beyond its end is found.
static char* block(size_t size) {
  blocks.emplace_back(new char[size]);
  return blocks.back().get();
}

static int64_t number() {
  static const int64_t ENDS[] = {0,    1,     -1,        9,         10,        999,       1000, 1001,
                                 9999, 10000, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, -128, 127};
  int64_t any = static_cast<int64_t>(chance());
  return chance() % 3 ? any >> (chance() % 64) : ENDS[chance() % (sizeof ENDS / sizeof *ENDS)];
}

static std::string text() {
  return std::string(chance() % 4 ? chance() % 12 : chance() % 300, static_cast<char>('a' + chance() % 26));
}

static const char* kept(const std::string& content) {
  char* place = block(content.size());
  if (!content.empty())
    memcpy(place, content.data(), content.size());
  return place;
}

// Some rows without a value, at any offset into the bitmap.
static const uint8_t* validity(int64_t rows, int64_t& offset) {
  offset = 0;
  if (chance() % 2)
    return nullptr;
  offset = chance() % 20;
  int64_t bytes = (offset + rows + 7) / 8;
  char* bits = block(bytes);
  for (int64_t at = 0; at < bytes; at++)
    bits[at] = static_cast<char>(chance());
  return reinterpret_cast<uint8_t*>(bits);
}

static bool has(const uint8_t* valid, int64_t offset, int64_t row) {
  return !valid || (valid[(row + offset) >> 3] >> ((row + offset) & 7) & 1);
}

struct Made {
  Part part{};
  int64_t longest = 0;
  std::vector<std::string> expected;  // what each row must read; of numbers what they must read back as
};

static Made make_part(int64_t rows) {
  Made made;
  Part& part = made.part;
  part.kind = chance() % 12;
  std::string content = text(), missing = text();
  part.text = kept(content), part.text_length = content.size();
  part.missing = kept(missing), part.missing_length = missing.size();
  if (part.kind != LITERAL)
    part.valid = validity(rows, part.valid_offset);
  static const int WIDTHS[] = {1, 2, 4, 8, -1, -2, -4, -8};
  part.width = WIDTHS[chance() % 8];
  if (part.kind >= THOUSANDTHS && part.kind <= PLAIN_ZERO && part.width == -8)
    part.width = 8;
  int size = std::abs(part.width);
  if (part.kind == LITERAL || part.kind == LABEL) {
    made.longest = std::max(content.size(), missing.size());
    made.expected.assign(rows, content);
  } else if (part.kind == WORD) {
    int64_t words = 1 + chance() % 100;
    std::string all;
    char *begins = block(8 * words), *lengths = block(4 * words), *codes = block(size * rows);
    std::vector<std::string> known;
    for (int64_t at = 0; at < words; at++) {
      known.push_back(text());
      int64_t begin = all.size();
      int32_t length = known.back().size();
      memcpy(begins + 8 * at, &begin, 8);
      memcpy(lengths + 4 * at, &length, 4);
      all += known.back();
      made.longest = std::max<int64_t>(made.longest, length);
    }
    made.longest = std::max<int64_t>(made.longest, missing.size());
    for (int64_t row = 0; row < rows; row++) {
      int64_t code = chance() % words;
      memcpy(codes + size * row, &code, size);  // little-endian
      made.expected.push_back(known[code]);
    }
    part.text = kept(all), part.begins = reinterpret_cast<int64_t*>(begins), part.lengths = reinterpret_cast<int32_t*>(lengths);
    part.values = codes;
    char* seen = block(words);
    memset(seen, 0, words);
    mark_codes(codes, part.width, part.valid, part.valid_offset, rows, reinterpret_cast<uint8_t*>(seen));
  } else if (part.kind == TEXT) {
    std::string all;
    char* begins = block(8 * (rows + 1));
    for (int64_t row = 0; row <= rows; row++) {
      int64_t begin = all.size();
      memcpy(begins + 8 * row, &begin, 8);
      if (row < rows) {
        made.expected.push_back(text());
        all += made.expected.back();
        made.longest = std::max<int64_t>(made.longest, made.expected.back().size());
      }
    }
    made.longest = std::max<int64_t>(made.longest, missing.size());
    part.text = kept(all), part.begins = reinterpret_cast<int64_t*>(begins);
  } else if (part.kind == FLOAT || part.kind == FLOAT_PLAIN_ZERO) {
    double* values = reinterpret_cast<double*>(block(8 * rows));
    for (int64_t row = 0; row < rows; row++) {
      uint64_t bits = chance();
      double any;
      memcpy(&any, &bits, 8);
      double some[] = {any, number() / 1000.0, number() / 2048.0, number() * 1e-9, 0.0, -0.0, NAN, INFINITY};
      values[row] = some[chance() % (chance() % 3 ? 4 : 8)];
      if (chance() % 8)  // else hardly ever all of them fit
        values[row] = std::fmod(std::isfinite(values[row]) ? std::fabs(values[row]) : 1.5, 1e12) + 0.001;
    }
    part.values = values;
    made.longest = std::max<int64_t>(NUMBER_BYTES, missing.size());
    if (!floats_fit(values, part.valid, part.valid_offset, rows))
      for (int64_t row = 0; row < rows; row++)
        values[row] = 0.5 + row;
    for (int64_t row = 0; row < rows; row++)
      made.expected.push_back(std::string(reinterpret_cast<char*>(values + row), 8));
  } else {
    char* values = block(size * rows);
    for (int64_t row = 0; row < rows; row++) {
      int64_t value = number();
      if (part.kind != WHOLE)
        value = value == INT64_MIN ? 0 : part.kind >= SHORTEST ? value % MOST_THOUSANDTHS : value;
      memcpy(values + size * row, &value, size);
      int64_t read = 0;  // what the width leaves of it
      memcpy(&read, values + size * row, size);
      if (part.width > 0 && size < 8 && (read >> (8 * size - 1) & 1))
        read -= INT64_C(1) << (8 * size);
      made.expected.push_back(part.width == -8 ? std::to_string(static_cast<uint64_t>(read)) : std::to_string(read));
    }
    part.values = values;
    made.longest = std::max<int64_t>(NUMBER_BYTES, missing.size());
  }
  return made;
}

// Whether a text is what the part must have written for the row; moves on behind it.
static void compare(const Made& made, int64_t row, const std::string& written, size_t& at) {
  const Part& part = made.part;
  if (part.kind != LITERAL && !has(part.valid, part.valid_offset, row)) {
    must(!written.compare(at, part.missing_length, part.missing, part.missing_length), "a missing value");
    at += part.missing_length;
    return;
  }
  const std::string& expected = made.expected[row];
  if (part.kind < WHOLE || part.kind == WHOLE || part.kind >= LABEL) {
    must(!written.compare(at, expected.size(), expected), "a text or whole number");
    at += expected.size();
    return;
  }
  size_t end = written.find_first_not_of("-.0123456789", at);
  std::string shown = written.substr(at, end == std::string::npos ? end : end - at);
  if (part.kind == FLOAT || part.kind == FLOAT_PLAIN_ZERO) {
    double value;
    memcpy(&value, expected.data(), 8);
    must(strtod(shown.c_str(), nullptr) == value, "a float does not read back");
  } else {
    // Thousandths without their point, filled to three places.
    size_t point = shown.find('.');
    std::string digits = shown.substr(0, point), behind = point == std::string::npos ? "" : shown.substr(point + 1);
    behind.resize(3, '0');
    must(strtoll((digits + behind).c_str(), nullptr, 10) == strtoll(expected.c_str(), nullptr, 10), "a number of thousandths");
  }
  at += shown.size() + (part.kind == TABBED);
}

static void rows_once() {
  int64_t rows = chance() % 40, count = 1 + chance() % 6;
  std::vector<Made> made;
  std::vector<Part> parts;
  int64_t longest = 0;
  // A literal behind each part keeps numbers apart.
  for (int64_t at = 0; at < count; at++) {
    made.push_back(make_part(rows));
    Made comma;
    comma.part.text = kept(","), comma.part.text_length = 1, comma.longest = 1, comma.expected.assign(rows, ",");
    made.push_back(comma);
  }
  for (const Made& one : made)
    parts.push_back(one.part), longest += one.longest;
  Part* exact = reinterpret_cast<Part*>(block(sizeof(Part) * parts.size()));
  memcpy(static_cast<void*>(exact), parts.data(), sizeof(Part) * parts.size());
  int64_t capacity = longest * (1 + chance() % 5), row = 0;
  while (row < rows) {
    char* out = block(capacity);
    int64_t reached = -1, size = render(exact, parts.size(), row, rows, out, capacity, longest, &reached);
    must(reached > row && reached <= rows && size >= 0 && size <= capacity, "rows make no progress, or too much");
    std::string written(out, size);
    size_t at = 0;
    for (; row < reached; row++)
      for (const Made& one : made)
        compare(one, row, written, at);
    must(at == written.size(), "more was written than the rows have");
  }
}

static uint64_t varint(const uint8_t*& p) {
  uint64_t value = 0;
  do
    value = value << 7 | (*p & 0x7f);
  while (*p++ & 0x80);
  return value;
}

static void pages_once() {
  int count = chance() % 50 ? 1 + chance() % 8 : chance() % 70;
  int64_t rows = chance() % 20 ? chance() % 60 : chance() % 4000, start = rows ? chance() % rows : 0;
  Column* columns = reinterpret_cast<Column*>(block(sizeof(Column) * count));
  for (int at = 0; at < count; at++) {
    Column column{};
    column.is_real = chance() % 3 == 0;
    column.valid = validity(rows, column.valid_offset);
    int64_t* values = reinterpret_cast<int64_t*>(block(8 * rows));
    int shift = chance() % 64;
    for (int64_t row = 0; row < rows; row++)
      values[row] = chance() % 4 ? number() >> shift : number();
    column.values = chance() % 10 ? values : nullptr;
    if (!column.values)
      column.valid = nullptr;
    columns[at] = column;
  }
  int64_t* numbers = reinterpret_cast<int64_t*>(block(8 * rows));
  int64_t last = chance() % 2 ? chance() % 5 : chance() >> (8 + chance() % 50);
  for (int64_t row = 0; row < rows; row++)
    numbers[row] = last += 1 + chance() % 3;
  bool numbered = chance() % 2;
  int64_t most = 2 + (rows - start) * (10 * count + 24) / (PAGE / 2);
  if (chance() % 20 == 0)
    most = chance() % most;
  uint8_t* out = reinterpret_cast<uint8_t*>(block(most * PAGE));
  int64_t* ends = reinterpret_cast<int64_t*>(block(8 * most));
  int64_t pages = write_leaves(columns, count, numbered ? numbers : nullptr, start, rows, numbered ? last : rows, out, most, ends);
  if (pages < 0)
    return;
  int64_t row = start;
  for (int64_t page = 0; page < pages; page++) {
    const uint8_t* base = out + page * PAGE;
    int cells = base[3] << 8 | base[4];
    for (int cell = 0; cell < cells; cell++, row++) {
      const uint8_t* p = base + (base[8 + 2 * cell] << 8 | base[9 + 2 * cell]);
      uint64_t length = varint(p);
      must(static_cast<int64_t>(varint(p)) == (numbered ? numbers[row] : row + 1), "the number of a row");
      const uint8_t* record = p;
      must(*p == 1 + count, "the header of a record");
      const uint8_t* serials = p + 1;
      p += 1 + count;
      for (int at = 0; at < count; at++) {
        const Column& column = columns[at];
        bool present = column.values && has(column.valid, column.valid_offset, row);
        must(present == (serials[at] != 0), "a null");
        static const int SIZES[] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0};
        must(serials[at] < 10, "the form of a value");
        int64_t value = serials[at] == 9;
        if (int size = SIZES[serials[at]]) {
          value = static_cast<int8_t>(*p) < 0 ? -1 : 0;
          for (int byte = 0; byte < size; byte++)
            value = static_cast<int64_t>(static_cast<uint64_t>(value) << 8 | *p++);
        }
        must(!present || value == static_cast<const int64_t*>(column.values)[row], "a value");
        must(!present || !column.is_real || serials[at] == 7, "a float");
      }
      must(static_cast<uint64_t>(p - record) == length, "the length of a record");
    }
    must(ends[page] == row - start, "the end of a page");
  }
  must(row == rows || start == rows, "rows are missing");
}

int main(int count, char** words) {
  if (count != 3 || part_size() != sizeof(Part) || column_size() != sizeof(Column))
    return 2;
  chance.seed(strtoul(words[2], nullptr, 10));
  uint64_t inputs = strtoul(words[1], nullptr, 10);
  for (uint64_t done = 0; done < inputs; done++) {
    done % 4 ? rows_once() : pages_once();
    blocks.clear();
  }
  printf("%llu inputs of the writers of rows and pages, all read back\n", static_cast<unsigned long long>(inputs));
  return 0;
}
