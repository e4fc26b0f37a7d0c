#include "compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "error.h"

namespace tilex {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Difference {
  double error = 0.0;
  double allowed = 0.0;

  double ratio() const {
    if (error == 0.0) return 0.0;
    return allowed > 0.0 ? error / allowed : kInfinity;
  }
};

Difference float_difference(double actual, double expected, const Tolerance& tolerance) {
  if (std::isnan(actual) && std::isnan(expected)) return {};
  if (actual == expected) return {};
  if (!std::isfinite(actual) || !std::isfinite(expected)) return {kInfinity, 0.0};
  return {std::fabs(actual - expected),
          tolerance.relative * std::fabs(expected) + tolerance.absolute};
}

Difference difference(const Array& actual, const Array& expected, std::size_t index,
                      const Tolerance& tolerance) {
  const ElementType& type = *actual.type().element;
  if (!type.is_float()) {
    const bool same = std::memcmp(actual.at(index), expected.at(index), type.bytes()) == 0;
    return same ? Difference{} : Difference{kInfinity, 0.0};
  }
  return float_difference(load_float(type, actual.at(index)),
                          load_float(*expected.type().element, expected.at(index)), tolerance);
}

void check_comparable(const ArrayType& actual, const ArrayType& expected) {
  const bool same = actual.element == expected.element;
  const bool wide = actual.element->is_float() && expected.element->name == std::string("float64");
  if (actual.shape == expected.shape && (same || wide)) return;
  throw UsageError("the reference is " + expected.text() + ", the argument " + actual.text());
}

}  // namespace

Comparison compare(const Array& actual, const Array& expected, const Tolerance& tolerance) {
  check_comparable(actual.type(), expected.type());
  Comparison result;
  const std::size_t size = actual.type().size();
  for (std::size_t index = 0; index < size; ++index) {
    const Difference found = difference(actual, expected, index, tolerance);
    const double ratio = found.ratio();
    if (ratio > 1.0) ++result.wrong;
    if (ratio <= result.worst_ratio) continue;
    result.worst = index;
    result.worst_ratio = ratio;
    result.error = found.error;
    result.allowed = found.allowed;
  }
  return result;
}

std::string index_text(const ArrayType& type, std::size_t flat) {
  std::string text;
  for (std::size_t i = type.shape.size(); i-- > 0;) {
    const auto extent = static_cast<std::size_t>(type.shape[i]);
    text = std::to_string(flat % extent) + (text.empty() ? "" : ", ") + text;
    flat /= extent;
  }
  return "[" + text + "]";
}

}  // namespace tilex
