#include "npy_header.h"

#include <limits>
#include <utility>

#include "error.h"

namespace tilex {
namespace {

class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  NpyHeader parse() {
    bool descr = false, order = false, shape = false;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = true;
        header_.descr = element();
      } else if (key == "fortran_order" && !order) {
        order = true;
        header_.fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = true;
        header_.shape = tuple();
      } else {
        throw UsageError("unexpected key '" + key + "' in the header");
      }
      if (!accept(',') && peek() != '}') malformed();
    }
    peek();
    if (position_ != text_.size()) malformed();
    if (!descr || !order || !shape) {
      throw UsageError("the header needs the keys descr, fortran_order and shape");
    }
    return header_;
  }

 private:
  std::string element() {
    if (peek() == '[') throw UsageError("structured element types are not supported");
    return string();
  }

  std::string string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') malformed();
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) malformed();
    const std::string found(text_.substr(position_ + 1, end - position_ - 1));
    position_ = end + 1;
    return found;
  }

  bool boolean() {
    peek();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      const std::string_view name(word);
      if (text_.substr(position_, name.size()) != name) continue;
      position_ += name.size();
      return value;
    }
    malformed();
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (!accept(')')) {
      extents.push_back(integer());
      if (!accept(',') && peek() != ')') malformed();
    }
    return extents;
  }

  std::int64_t integer() {
    constexpr std::int64_t kLimit = std::numeric_limits<std::int64_t>::max();
    if (peek() < '0' || peek() > '9') malformed();
    std::int64_t value = 0;
    while (position_ < text_.size() && text_[position_] >= '0' && text_[position_] <= '9') {
      const int digit = text_[position_++] - '0';
      if (value > (kLimit - digit) / 10) throw UsageError("an extent passes 2^63 - 1");
      value = value * 10 + digit;
    }
    return value;
  }

  // Next character that is no space, or NUL at the end.
  char peek() {
    position_ = text_.find_first_not_of(" \n", position_);
    if (position_ == std::string_view::npos) position_ = text_.size();
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  bool accept(char wanted) {
    if (peek() != wanted) return false;
    ++position_;
    return true;
  }

  void expect(char wanted) {
    if (!accept(wanted)) malformed();
  }

  [[noreturn]] void malformed() const { throw UsageError("malformed header"); }

  std::string_view text_;
  std::size_t position_ = 0;
  NpyHeader header_{};
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text) { return HeaderParser(text).parse(); }

std::string format_npy_header(const NpyHeader& header) {
  std::string extents;
  for (std::int64_t extent : header.shape) {
    extents += std::to_string(extent) + (header.shape.size() == 1 ? "," : ", ");
  }
  if (header.shape.size() > 1) extents.resize(extents.size() - 2);
  return "{'descr': '" + header.descr + "', 'fortran_order': " +
         (header.fortran_order ? "True" : "False") + ", 'shape': (" + extents + "), }";
}

}  // namespace tilex
