// Comparison of an array with its reference, element by element.
#pragma once

#include <cstddef>
#include <string>

#include "array.h"

namespace tilex {

struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};

struct Comparison {
  std::size_t wrong = 0;       // elements outside the tolerance
  std::size_t worst = 0;       // flat index of the largest error over what is allowed there
  double worst_ratio = -1.0;   // of that element; infinite where NaN or infinity is misplaced
  double error = 0.0;          // |actual - expected| of that element
  double allowed = 0.0;
};

// A floating element y is right when |y - e| <= relative * |e| + absolute, where NaN matches NaN
// and infinity the same infinity; other types match exactly. The reference has the array's
// element type, or float64 for a floating one. Throws UsageError for another type or shape.
Comparison compare(const Array& actual, const Array& expected, const Tolerance& tolerance);

// "[1, 17]": the multi-index of a flat index.
std::string index_text(const ArrayType& type, std::size_t flat);

}  // namespace tilex
