// SPDX-License-Identifier: Apache-2.0
// Rows of columns as text: each part of a row is copied or formatted where it belongs, in one pass.
#include <charconv>
#include <cmath>
#include <cstring>

#include "surface.h"

namespace codec {
namespace {

// Order and layout as in src/stepscope/render/codec_rows.py.
enum Kind : int32_t {
  LITERAL,
  WORD,
  WHOLE,
  THOUSANDTHS,
  THOUSANDTHS_TAB,
  PLAIN,
  SHORTEST,
  SHORTEST_PLAIN_ZERO,
  FLOAT,
  FLOAT_PLAIN_ZERO,
  LABEL,
  TEXT
};

struct Part {
  int32_t kind;
  int32_t width;  // bytes of an integer, negative when it is unsigned
  const void* values;
  const uint8_t* valid;
  int64_t valid_offset;
  const char* text;  // of a literal or label, or all texts of words or of a text column
  int64_t text_length;
  const int64_t* begins;  // of each word by its code, or of each row of a text column (and one more)
  const int32_t* lengths;  // of each word
  const char* missing;
  int64_t missing_length;
};

// Room that a number may take; src/stepscope/render/codec_rows.py reserves as much.
constexpr int FLOAT_BYTES = 40;

struct Digits {
  char four[40000];
  Digits() {
    for (int i = 0; i < 10000; i++) {
      char* at = four + 4 * i;
      at[0] = '0' + i / 1000;
      at[1] = '0' + i / 100 % 10;
      at[2] = '0' + i / 10 % 10;
      at[3] = '0' + i % 10;
    }
  }
};
const Digits digits;

// Digits behind the point of n/2048, which are at most eleven.
struct Binary {
  char text[2048][11];
  uint8_t length[2048];
  Binary() {
    for (int i = 0; i < 2048; i++) {
      int64_t value = i * INT64_C(48828125);
      for (int k = 10; k >= 0; k--) {
        text[i][k] = '0' + value % 10;
        value /= 10;
      }
      int used = 11;
      while (used > 1 && text[i][used - 1] == '0')
        used--;
      length[i] = used;
    }
  }
};
const Binary binary;

// Most texts are a few bytes long: calling memcpy for them takes longer than copying them.
inline char* put(char* p, const char* text, int64_t length) {
  if (length > 32) {
    memcpy(p, text, length);
  } else if (length >= 16) {
    memcpy(p, text, 16);
    memcpy(p + length - 16, text + length - 16, 16);
  } else if (length >= 8) {
    memcpy(p, text, 8);
    memcpy(p + length - 8, text + length - 8, 8);
  } else if (length >= 4) {
    memcpy(p, text, 4);
    memcpy(p + length - 4, text + length - 4, 4);
  } else if (length) {  // an empty text may have no address
    p[0] = text[0];
    p[length / 2] = text[length / 2];
    p[length - 1] = text[length - 1];
  }
  return p + length;
}

constexpr uint64_t POWERS[20] = {1,
                                 10,
                                 100,
                                 1000,
                                 10000,
                                 100000,
                                 1000000,
                                 10000000,
                                 100000000,
                                 1000000000,
                                 10000000000,
                                 100000000000,
                                 1000000000000,
                                 10000000000000,
                                 100000000000000,
                                 1000000000000000,
                                 10000000000000000,
                                 100000000000000000,
                                 1000000000000000000,
                                 10000000000000000000u};

// How many digits a number has: its bits tell it to within one.
inline int places(uint64_t value) {
  int fewest = (64 - __builtin_clzll(value | 1)) * 1233 >> 12;
  return fewest + (fewest == 0 || value >= POWERS[fewest]);
}

inline char* put_unsigned(char* p, uint64_t value) {
  int left = places(value);
  char* end = p + left;
  char* at = end;
  for (; left > 4; left -= 4) {
    uint64_t rest = value / 10000;
    at -= 4;
    memcpy(at, digits.four + 4 * (value - rest * 10000), 4);
    value = rest;
  }
  const char* first = digits.four + 4 * value + 4 - left;
  for (int i = 0; i < left; i++)
    p[i] = first[i];
  return end;
}

inline int64_t load(const void* values, int width, int64_t row) {
  switch (width) {
    case 8:
    case -8: return static_cast<const int64_t*>(values)[row];
    case 4: return static_cast<const int32_t*>(values)[row];
    case -4: return static_cast<const uint32_t*>(values)[row];
    case 2: return static_cast<const int16_t*>(values)[row];
    case -2: return static_cast<const uint16_t*>(values)[row];
    case 1: return static_cast<const int8_t*>(values)[row];
    default: return static_cast<const uint8_t*>(values)[row];
  }
}

inline char* put_whole(char* p, int64_t value, bool is_unsigned) {
  if (value < 0 && !is_unsigned) {
    *p++ = '-';
    return put_unsigned(p, 0 - static_cast<uint64_t>(value));
  }
  return put_unsigned(p, static_cast<uint64_t>(value));
}

inline char* put_thousandths(char* p, int64_t value) {
  uint64_t size = value;
  if (value < 0) {
    *p++ = '-';
    size = 0 - size;
  }
  uint64_t whole = size / 1000;
  p = put_unsigned(p, whole);
  *p++ = '.';
  return put(p, digits.four + 4 * (size - whole * 1000) + 1, 3);
}

inline char* put_shortest(char* p, int64_t value) {
  p = put_thousandths(p, value);
  if (p[-1] == '0' && p[-2] == '0')
    return p - 2;
  return p[-1] == '0' ? p - 1 : p;
}

inline char* put_plain(char* p, int64_t value) {
  p = put_thousandths(p, value);
  while (p[-1] == '0')
    p--;
  return p[-1] == '.' ? p - 1 : p;
}

// The shortest text that reads back the same, of floats that `floats_fit` lets pass.
inline char* put_float(char* p, double value) {
  // Up to 15 digits a decimal number is the only one of its length that reads back as its float.
  double scaled = std::rint(value * 1000.0);
  if (scaled / 1000.0 == value)
    return put_shortest(p, static_cast<int64_t>(scaled));
  double fine = value * 2048.0;
  // Up to here no number shorter than the exact one reads back the same.
  if (fine == std::floor(fine) && fine >= 0 && fine < 2048.0 * 131072) {
    int64_t whole = static_cast<int64_t>(fine);
    p = put_unsigned(p, whole >> 11);
    *p++ = '.';
    return put(p, binary.text[whole & 2047], binary.length[whole & 2047]);
  }
#ifdef __cpp_lib_to_chars
  char* end = std::to_chars(p, p + FLOAT_BYTES, value, std::chars_format::fixed).ptr;
  if (!memchr(p, '.', end - p))
    end = put(end, ".0", 2);
  return end;
#else
  return p;
#endif
}

}  // namespace

CODEC_FUNCTION int64_t part_size() {
  return sizeof(Part);
}

// Writes rows from `start` on while the next one fits for sure; returns the bytes written and puts the next row into `reached`.
CODEC_FUNCTION int64_t render(const Part* parts, int32_t count, int64_t start, int64_t stop, char* out, int64_t capacity,
                              int64_t longest_row, int64_t* reached) {
  char* p = out;
  int64_t row = start;
  for (; row < stop && capacity - (p - out) >= longest_row; row++) {
    for (const Part* part = parts; part < parts + count; part++) {
      const Part& at = *part;
      if (at.kind == LITERAL) {
        p = put(p, at.text, at.text_length);
        continue;
      }
      if (!has_value(at.valid, at.valid_offset, row)) {
        p = put(p, at.missing, at.missing_length);
        continue;
      }
      switch (at.kind) {
        case WORD: {
          int64_t code = load(at.values, at.width, row);
          p = put(p, at.text + at.begins[code], at.lengths[code]);
          break;
        }
        case WHOLE: p = put_whole(p, load(at.values, at.width, row), at.width == -8); break;
        case THOUSANDTHS: p = put_thousandths(p, load(at.values, at.width, row)); break;
        case THOUSANDTHS_TAB:
          p = put_thousandths(p, load(at.values, at.width, row));
          *p++ = '\t';
          break;
        case PLAIN: p = put_plain(p, load(at.values, at.width, row)); break;
        case SHORTEST: p = put_shortest(p, load(at.values, at.width, row)); break;
        case SHORTEST_PLAIN_ZERO: {
          int64_t value = load(at.values, at.width, row);
          if (value)
            p = put_shortest(p, value);
          else
            *p++ = '0';
          break;
        }
        case FLOAT: p = put_float(p, static_cast<const double*>(at.values)[row]); break;
        case FLOAT_PLAIN_ZERO: {
          double value = static_cast<const double*>(at.values)[row];
          if (value != 0)
            p = put_float(p, value);
          else
            *p++ = '0';
          break;
        }
        case LABEL: p = put(p, at.text, at.text_length); break;
        case TEXT: p = put(p, at.text + at.begins[row], at.begins[row + 1] - at.begins[row]); break;
      }
    }
  }
  *reached = row;
  return p - out;
}

// Sets the byte of each code that a row has.
CODEC_FUNCTION void mark_codes(const void* codes, int32_t width, const uint8_t* valid, int64_t valid_offset, int64_t rows,
                               uint8_t* seen) {
  for (int64_t row = 0; row < rows; row++)
    if (has_value(valid, valid_offset, row))
      seen[load(codes, width, row)] = 1;
}

// Whether `render` writes all of these floats as the fallback does: not those that need an exponent or lose their sign.
CODEC_FUNCTION int32_t floats_fit(const double* values, const uint8_t* valid, int64_t valid_offset, int64_t rows) {
  for (int64_t row = 0; row < rows; row++) {
    if (!has_value(valid, valid_offset, row))
      continue;
    double size = std::fabs(values[row]);
    if (!(size < 1e12) || (size < 1e-3 && (size != 0 || std::signbit(values[row]))))
      return 0;
#ifndef __cpp_lib_to_chars
    double fine = values[row] * 2048.0;
    if (std::rint(values[row] * 1000.0) / 1000.0 != values[row] &&
        !(fine == std::floor(fine) && fine >= 0 && fine < 2048.0 * 131072))
      return 0;
#endif
  }
  return 1;
}

}  // namespace codec
