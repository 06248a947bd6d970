// SPDX-License-Identifier: Apache-2.0
// Events of a Chrome trace as columns, in one pass over their JSON.
//
// The bytes come from files, so nothing in them is trusted: the grammar is checked, every access is within bounds, and what has no
// exact counterpart here (a key twice, a nested object as a text, numbers of unusual forms) makes the stretch `unfit`. The caller
// then reads it with its general parser.
#include <charconv>
#include <cstdlib>
#include <cstring>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "surface.h"

namespace codec {
namespace {

// Kinds and layouts as in src/stepscope/formats/chrome/codec_events.py.
enum Kind : int32_t { TEXT, INTEGER, FLOAT, BOOLEAN, TIME, LENGTH, NUMBER_OR_TEXT };
constexpr int64_t UNFIT = -1, NO_MEMORY = -2;

struct Column {
  int32_t kind;
  int32_t other;  // of NUMBER_OR_TEXT: the column of texts that are not numbers
  int32_t uses_source;  // some texts are views of the source, some of the decoded bytes
  int32_t uses_decoded;
  void* values;  // on first use: 16 bytes a row for text, 1 for booleans, else 8
  uint8_t* present;
  int64_t count;
  int64_t last_row;  // of the last event that had the key, with a value or null
};

struct Key {
  const char* text;
  int64_t length;
  int32_t column;  // below 0: a free slot
  int32_t unused;
};

constexpr uint32_t SLOTS = 512;
constexpr int MOST_DEPTH = 64;
constexpr int64_t LATEST_NS = INT64_C(1) << 62;

uint32_t slot_of(const char* text, int64_t length) {
  uint32_t hash = 2166136261u ^ static_cast<uint32_t>(length);
  for (int64_t i = 0; i < length; i++)
    hash = (hash ^ static_cast<uint8_t>(text[i])) * 16777619u;
  return (hash ^ (hash >> 15)) % SLOTS;
}

struct Keys {
  Key slots[SLOTS];

  int32_t find(const char* text, int64_t length) const {
    uint32_t slot = slot_of(text, length);
    for (uint32_t tried = 0; tried < SLOTS && slots[slot].column >= 0; tried++, slot = (slot + 1) % SLOTS)
      if (slots[slot].length == length && !memcmp(slots[slot].text, text, length))
        return slots[slot].column;
    return -1;
  }
};

inline bool is_digit(char c) {
  return static_cast<unsigned char>(c - '0') < 10;
}

// A value as it stands in the JSON.
struct Value {
  enum Form { STRING, NUMBER, WORD, LIST, NONE } form;
  const char* begin;
  const char* end;
  bool escaped;
  bool fractional;  // a number with a point or an exponent
};

class Reader {
 public:
  Reader(const char* data, int64_t size, Column* columns, int64_t most_rows)
      : data_(data), p_(data), end_(data + size), columns_(columns), most_rows_(most_rows) {}
  ~Reader() {
    free(decoded_);
  }

  int64_t read(const Keys& fields, const Keys& args, bool by_lines) {
    int64_t row = 0;
    blanks();
    while (p_ < end_) {
      if (row >= most_rows_ || *p_++ != '{' || !object(fields, &args, row))
        return failed_;
      row++;
      const char* after = p_;
      blanks();
      if (p_ == end_)
        break;
      if (by_lines) {
        if (!memchr(after, '\n', p_ - after))
          return UNFIT;
      } else {
        if (*p_++ != ',')
          return UNFIT;
        blanks();
        if (p_ == end_)
          return UNFIT;
      }
    }
    return row;
  }

  char* take_decoded(int64_t* size) {
    char* taken = decoded_;
    *size = decoded_size_;
    decoded_ = nullptr;
    return taken;
  }

 private:
  void blanks() {
    while (p_ < end_ && (*p_ == ' ' || *p_ == '\n' || *p_ == '\r' || *p_ == '\t'))
      p_++;
  }

  bool next(char wanted) {
    blanks();
    return p_ < end_ && *p_++ == wanted;
  }

  // From behind the opening quote to behind the closing one; false for control characters, which JSON forbids.
  bool string(const char*& end, bool& escaped) {
    escaped = false;
    for (;;) {
#if defined(__SSE2__)
      const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
      while (end_ - p_ >= 16) {
        __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p_));
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        found = _mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
        int mask = _mm_movemask_epi8(found);
        if (mask) {
          p_ += __builtin_ctz(mask);
          break;
        }
        p_ += 16;
      }
#endif
      while (p_ < end_ && *p_ != '"' && *p_ != '\\' && static_cast<uint8_t>(*p_) >= 0x20)
        p_++;
      if (p_ == end_ || static_cast<uint8_t>(*p_) < 0x20)
        return false;
      if (*p_ == '"') {
        end = p_++;
        return true;
      }
      escaped = true;
      if (end_ - p_ < 2 || !strchr("\"\\/bfnrtu", p_[1]) || !p_[1])
        return false;
      if (p_[1] == 'u') {
        if (end_ - p_ < 6 || hexadecimal(p_ + 2) < 0)
          return false;
        p_ += 4;
      }
      p_ += 2;
    }
  }

  bool number(bool& fractional) {
    fractional = false;
    if (*p_ == '-')
      p_++;
    const char* whole = p_;
    while (p_ < end_ && is_digit(*p_))
      p_++;
    if (p_ == whole || (*whole == '0' && p_ - whole > 1))
      return false;
    if (p_ < end_ && *p_ == '.') {
      const char* point = ++p_;
      while (p_ < end_ && is_digit(*p_))
        p_++;
      if (p_ == point)
        return false;
      fractional = true;
    }
    if (p_ < end_ && (*p_ == 'e' || *p_ == 'E')) {
      p_++;
      if (p_ < end_ && (*p_ == '+' || *p_ == '-'))
        p_++;
      const char* power = p_;
      while (p_ < end_ && is_digit(*p_))
        p_++;
      if (p_ == power)
        return false;
      fractional = true;
    }
    return true;
  }

  bool word(const char* text, int64_t length) {
    if (end_ - p_ < length || memcmp(p_, text, length))
      return false;
    p_ += length;
    return true;
  }

  // Any value but an object or a list.
  bool simple(Value& value) {
    value.begin = p_;
    value.escaped = value.fractional = false;
    switch (*p_) {
      case '"':
        value.form = Value::STRING;
        value.begin = ++p_;
        return string(value.end, value.escaped);
      case 't':
      case 'f':
        value.form = Value::WORD;
        if (!(*p_ == 't' ? word("true", 4) : word("false", 5)))
          return false;
        break;
      case 'n':
        value.form = Value::NONE;
        if (!word("null", 4))
          return false;
        break;
      default:
        value.form = Value::NUMBER;
        if ((*p_ != '-' && !is_digit(*p_)) || end_ - p_ < 1 || !number(value.fractional))
          return false;
    }
    value.end = p_;
    return true;
  }

  // Any value, whose content nobody asks for.
  bool skip(int depth) {
    blanks();
    if (p_ == end_ || depth > MOST_DEPTH)
      return false;
    Value value;
    if (*p_ != '{' && *p_ != '[')
      return simple(value);
    bool is_object = *p_++ == '{';
    char close = is_object ? '}' : ']';
    blanks();
    if (p_ < end_ && *p_ == close) {
      p_++;
      return true;
    }
    for (;;) {
      if (is_object) {
        const char* end;
        bool escaped;
        if (!next('"') || !string(end, escaped) || !next(':'))
          return false;
      }
      if (!skip(depth + 1))
        return false;
      blanks();
      if (p_ == end_)
        return false;
      char c = *p_++;
      if (c == close)
        return true;
      if (c != ',')
        return false;
    }
  }

  // A list of numbers, words, plain strings and such lists, with its text in the form that the general parser gives it.
  bool list(int depth) {
    if (depth > MOST_DEPTH || !decode('['))
      return false;
    p_++;
    blanks();
    if (p_ < end_ && *p_ == ']') {
      p_++;
      return decode(']');
    }
    for (;;) {
      blanks();
      if (p_ == end_ || *p_ == '{')
        return false;
      if (*p_ == '[') {
        if (!list(depth + 1))
          return false;
      } else {
        Value value;
        const char* begin = p_;
        if (!simple(value) || value.escaped || (value.form == Value::NUMBER && !is_canonical(value)) || !decode(begin, p_ - begin))
          return false;
      }
      blanks();
      if (p_ == end_)
        return false;
      char c = *p_++;
      if (c == ']')
        return decode(']');
      if (c != ',' || !decode(", ", 2))
        return false;
    }
  }

  // Whether the general parser, which may read numbers as doubles, writes this one the same.
  static bool is_canonical(const Value& value) {
    int64_t length = value.end - value.begin;
    if (!value.fractional)
      return *value.begin == '-' ? length <= 19 && value.begin[1] != '0' : length <= 19;
#ifdef __cpp_lib_to_chars
    double number;
    char text[64];
    if (length > 24 || std::from_chars(value.begin, value.end, number).ec != std::errc())
      return false;
    auto done = std::to_chars(text, text + sizeof text, number, std::chars_format::fixed);
    return done.ec == std::errc() && done.ptr - text == length && !memcmp(text, value.begin, length);
#else
    return false;
#endif
  }

  bool decode(const char* text, int64_t length) {
    if (!decoded_) {
      // Blanks behind commas may make a list longer than its source, which has a byte for each of them.
      capacity_ = 2 * (end_ - data_) + 16;
      decoded_ = static_cast<char*>(malloc(capacity_));
      if (!decoded_) {
        failed_ = NO_MEMORY;
        return false;
      }
    }
    if (capacity_ - decoded_size_ < length)
      return false;
    memcpy(decoded_ + decoded_size_, text, length);
    decoded_size_ += length;
    return true;
  }
  bool decode(char c) {
    return decode(&c, 1);
  }

  static int hexadecimal(const char* p) {
    int value = 0;
    for (int i = 0; i < 4; i++) {
      char c = p[i];
      int digit = is_digit(c) ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
      if (digit < 0)
        return -1;
      value = value * 16 + digit;
    }
    return value;
  }

  // The text without its backslashes.
  bool unescape(Value& value) {
    int64_t start = decoded_size_;
    for (const char* p = value.begin; p < value.end;) {
      const char* plain = static_cast<const char*>(memchr(p, '\\', value.end - p));
      if (!decode(p, (plain ? plain : value.end) - p))
        return false;
      if (!plain)
        break;
      p = plain + 2;  // a backslash is never the last byte of a string
      switch (plain[1]) {
        case '"':
        case '\\':
        case '/':
          if (!decode(plain[1]))
            return false;
          break;
        case 'b':
          if (!decode('\b'))
            return false;
          break;
        case 'f':
          if (!decode('\f'))
            return false;
          break;
        case 'n':
          if (!decode('\n'))
            return false;
          break;
        case 'r':
          if (!decode('\r'))
            return false;
          break;
        case 't':
          if (!decode('\t'))
            return false;
          break;
        case 'u': {
          if (value.end - p < 4)
            return false;
          int code = hexadecimal(p);
          p += 4;
          if (code >= 0xd800 && code < 0xdc00) {
            int low = value.end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hexadecimal(p + 2) : -1;
            if (low < 0xdc00 || low > 0xdfff)
              return false;
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            p += 6;
          }
          if (code < 0 || (code >= 0xd800 && code < 0xe000) || !decode_character(code))
            return false;
          break;
        }
        default: return false;
      }
    }
    value.begin = decoded_ + start;
    value.end = decoded_ + decoded_size_;
    return true;
  }

  bool decode_character(int code) {
    if (code < 0x80)
      return decode(static_cast<char>(code));
    if (code < 0x800)
      return decode(static_cast<char>(0xc0 | code >> 6)) && decode(static_cast<char>(0x80 | (code & 63)));
    if (code < 0x10000)
      return decode(static_cast<char>(0xe0 | code >> 12)) && decode(static_cast<char>(0x80 | (code >> 6 & 63))) &&
             decode(static_cast<char>(0x80 | (code & 63)));
    return decode(static_cast<char>(0xf0 | code >> 18)) && decode(static_cast<char>(0x80 | (code >> 12 & 63))) &&
           decode(static_cast<char>(0x80 | (code >> 6 & 63))) && decode(static_cast<char>(0x80 | (code & 63)));
  }

  // The members of an object, from behind its opening brace; `args` are the keys of the object under "args".
  bool object(const Keys& keys, const Keys* args, int64_t row) {
    blanks();
    if (p_ < end_ && *p_ == '}') {
      p_++;
      return true;
    }
    for (;;) {
      const char* key_end;
      bool escaped;
      if (!next('"'))
        return false;
      const char* key = p_;
      if (!string(key_end, escaped) || escaped || !next(':'))
        return false;
      blanks();
      if (p_ == end_)
        return false;
      if (args && key_end - key == 4 && !memcmp(key, "args", 4)) {
        if (last_args_ == row)
          return false;
        last_args_ = row;
        if (*p_ == '{') {
          p_++;
          if (!object(*args, nullptr, row))
            return false;
        } else if (!word("null", 4)) {
          return false;
        }
      } else {
        int32_t column = keys.find(key, key_end - key);
        if (column < 0 ? !skip(0) : !put_next(columns_[column], row))
          return false;
      }
      blanks();
      if (p_ == end_)
        return false;
      char c = *p_++;
      if (c == '}')
        return true;
      if (c != ',')
        return false;
    }
  }

  bool put_next(Column& column, int64_t row) {
    if (column.last_row == row)
      return false;
    column.last_row = row;
    Value value;
    if (*p_ == '[') {
      if (column.kind != TEXT)
        return false;
      value.begin = p_;
      int64_t start = decoded_size_;
      if (!list(0))
        return false;
      value.end = p_;
      int64_t length = decoded_size_ - start;
      if (value.end - value.begin == length && !memcmp(value.begin, decoded_ + start, length)) {
        decoded_size_ = start;
      } else {
        value.begin = decoded_ + start;
        value.end = value.begin + length;
      }
      return put_text(column, value, row);
    }
    if (!simple(value))
      return false;
    if (value.form == Value::NONE)
      return true;
    if (value.escaped && (column.kind != TEXT || !unescape(value)))
      return false;
    int64_t number;
    switch (column.kind) {
      case TEXT: return (value.form != Value::NUMBER || is_canonical(value)) && put_text(column, value, row);
      case NUMBER_OR_TEXT:
        if (!to_integer(value, number))
          return is_no_number(value) && put_text(columns_[column.other], value, row);
        return put(column, number, row);
      case INTEGER: return to_integer(value, number) ? put(column, number, row) : is_no_number(value);
      case FLOAT: {
        double real;
        if (!to_float(value, real))
          return is_no_number(value);
        return put(column, real, row);
      }
      case BOOLEAN: return put_boolean(column, value, row);
      case TIME: return to_decimal(value, 3, number) && number >= -LATEST_NS && number <= LATEST_NS && put(column, number, row);
      case LENGTH: return to_decimal(value, 8, number) && put(column, static_cast<double>(number) / 100000.0, row);
      default: return false;
    }
  }

  static bool to_integer(const Value& value, int64_t& number) {
    const char* p = value.begin;
    bool negative = p < value.end && *p == '-';
    p += negative;
    if (p == value.end || value.end - p > 18)
      return false;
    number = 0;
    for (; p < value.end; p++) {
      if (!is_digit(*p))
        return false;
      number = number * 10 + (*p - '0');
    }
    if (negative)
      number = -number;
    return true;
  }

  // A plain decimal number as a whole number of its last place; further digits are rounded, halves to the even number.
  static bool to_decimal(const Value& value, int places, int64_t& number) {
    const bool is_time = places == 3;
    const char* p = value.begin;
    bool negative = p < value.end && *p == '-';
    p += negative;
    uint64_t size = 0;
    int digits = 0, whole = 0, beyond = 0;
    for (; p < value.end && is_digit(*p); p++, digits++, whole++) {
      if (digits == 19)
        return false;
      size = size * 10 + (*p - '0');
    }
    if (!whole)
      return false;
    bool half = false, more = false;  // of the digits beyond the last place: at least a half, not exactly a half
    if (p < value.end) {
      if (*p++ != '.' || p == value.end || value.end - p > 40)
        return false;
      for (; p < value.end && is_digit(*p); p++) {
        if (places) {
          if (digits == 19)
            return false;
          size = size * 10 + (*p - '0');
          digits++;
          places--;
        } else if (beyond++) {
          more |= *p != '0';
        } else {
          half = *p >= '5';
          more = *p != '5' && *p != '0';
        }
      }
      if (p < value.end)
        return false;
    }
    // Of a number without quotes the general parser keeps as many digits as a double has, but for the times that the caller quotes.
    bool is_exact = is_time && whole >= 13 && (whole > 13 || !beyond);
    if (value.form == Value::NUMBER && value.fractional && digits + beyond > 15 && !is_exact && !is_canonical(value))
      return false;
    if (digits + places > 19)
      return false;
    while (places-- > 0)
      size *= 10;
    size += half && (more || size % 2);
    if (size > static_cast<uint64_t>(INT64_MAX))
      return false;
    number = negative ? -static_cast<int64_t>(size) : static_cast<int64_t>(size);
    return true;
  }

  static bool to_float(const Value& value, double& real) {
#ifdef __cpp_lib_to_chars
    const char* p = value.begin;
    p += p < value.end && *p == '-';
    if (p == value.end || !is_digit(*p) || value.end - p > 40)
      return false;
    auto done = std::from_chars(value.begin, value.end, real);
    return done.ec == std::errc() && done.ptr == value.end;
#else
    (void)value;
    (void)real;
    return false;
#endif
  }

  // Whether no parser takes the text for a number: it has no digit, or something that numbers do not have.
  static bool is_no_number(const Value& value) {
    bool digit = false;
    for (const char* p = value.begin; p < value.end; p++) {
      digit |= is_digit(*p);
      if (!is_digit(*p) && !strchr("+-._eEinfatyINFATY \t\r\n\f\v", *p) && *p)
        return true;
    }
    return !digit;
  }

  bool put_boolean(Column& column, const Value& value, int64_t row) {
    if (value.form == Value::NUMBER && value.fractional)
      return false;
    int64_t length = value.end - value.begin;
    bool yes = (length == 4 && !memcmp(value.begin, "true", 4)) || (length == 1 && *value.begin == '1');
    bool no = (length == 5 && !memcmp(value.begin, "false", 5)) || (length == 1 && *value.begin == '0');
    return (!yes && !no) || put(column, static_cast<uint8_t>(yes), row);
  }

  bool put_text(Column& column, const Value& value, int64_t row) {
    struct View {
      uint32_t length;
      char text[12];
    } view = {};
    static_assert(sizeof view == 16, "an Arrow string view");
    int64_t length = value.end - value.begin;
    view.length = static_cast<uint32_t>(length);
    if (length <= 12) {
      if (length)
        memcpy(view.text, value.begin, length);
    } else {
      bool is_decoded = decoded_ && value.begin >= decoded_ && value.begin < decoded_ + capacity_;
      uint32_t place[2] = {is_decoded, static_cast<uint32_t>(value.begin - (is_decoded ? decoded_ : data_))};
      memcpy(view.text, value.begin, 4);
      memcpy(view.text + 4, place, 8);
      (is_decoded ? column.uses_decoded : column.uses_source) = 1;
    }
    return put(column, view, row);
  }

  template <class T>
  bool put(Column& column, const T& value, int64_t row) {
    if (!column.values) {
      column.values = calloc(most_rows_, sizeof(T));
      column.present = static_cast<uint8_t*>(calloc(most_rows_, 1));
      if (!column.values || !column.present) {
        failed_ = NO_MEMORY;
        return false;
      }
    }
    memcpy(static_cast<char*>(column.values) + row * sizeof(T), &value, sizeof(T));
    column.present[row] = 1;
    column.count++;
    return true;
  }

  const char* data_;
  const char* p_;
  const char* end_;
  Column* columns_;
  int64_t most_rows_;
  int64_t last_args_ = -1;
  int64_t failed_ = UNFIT;
  char* decoded_ = nullptr;
  int64_t decoded_size_ = 0;
  int64_t capacity_ = 0;
};

}  // namespace

CODEC_FUNCTION int64_t event_column_size() {
  return sizeof(Column);
}

CODEC_FUNCTION int64_t keys_size() {
  return sizeof(Keys);
}

CODEC_FUNCTION void clear_keys(Keys* keys) {
  for (Key& slot : keys->slots)
    slot.column = -1;
}

// The text must stay where it is; 0 when there are too many keys.
CODEC_FUNCTION int32_t add_key(Keys* keys, const char* text, int64_t length, int32_t column) {
  uint32_t slot = slot_of(text, length);
  for (uint32_t tried = 0; tried < SLOTS / 2; tried++, slot = (slot + 1) % SLOTS) {
    if (keys->slots[slot].column < 0) {
      keys->slots[slot] = {text, length, column, 0};
      return 1;
    }
  }
  return 0;
}

// Reads events that are separated by commas, or stand on lines of their own (`by_lines`). Returns their number, or below 0 when the
// stretch is unfit. `columns` receive buffers, `decoded` the texts that do not stand in the source as they are; both are given back
// by `release`, also those of an unfit stretch.
CODEC_FUNCTION int64_t read_events(const char* data, int64_t size, const Keys* fields, const Keys* args, Column* columns,
                                   int64_t most_rows, int32_t by_lines, char** decoded, int64_t* decoded_size) {
  // Views of the source and of the decoded texts have places of 32 bits.
  if (size >= INT64_C(1) << 30)
    return UNFIT;
  Reader reader(data, size, columns, most_rows);
  int64_t rows = reader.read(*fields, *args, by_lines);
  *decoded = reader.take_decoded(decoded_size);
  return rows;
}

// At least as many as there are events: objects that are not the value of a key, such as `args`.
CODEC_FUNCTION int64_t most_events(const char* data, int64_t size) {
  int64_t count = 0;
  const char* end = data + size;
  for (const char* at = data; at < end && (at = static_cast<const char*>(memchr(at, '{', end - at))); at++) {
    const char* before = at;
    while (before > data && (before[-1] == ' ' || before[-1] == '\n' || before[-1] == '\r' || before[-1] == '\t'))
      before--;
    count += before == data || before[-1] != ':';
  }
  return count;
}

CODEC_FUNCTION void release(void* buffer) {
  free(buffer);
}

}  // namespace codec
