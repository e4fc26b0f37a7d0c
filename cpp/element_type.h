// Element types of arrays: their names in the tile language, in .npy headers and in DLPack.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <dlpack/dlpack.h>

namespace tilex {

struct ElementType {
  const char* name;  // as in the tile language
  const char* npy;   // as in a .npy header
  DLDataType dlpack;

  std::size_t bytes() const { return dlpack.bits / 8; }
  bool is_float() const { return dlpack.code == kDLFloat || dlpack.code == kDLBfloat; }
};

// nullptr where there is no such type. NumPy has no bfloat16: "<u2" holds its bits.
const ElementType* element_type_named(std::string_view name);
const ElementType* element_type_of_npy(std::string_view descr);

// All names, for error messages: "float32, float16, ...".
std::string element_type_names();

// Value of the element at `address`, exact for every floating type.
double load_float(const ElementType& type, const std::byte* address);

// Text of the element at `address`: the shortest that identifies a float32, whole integers.
std::string element_text(const ElementType& type, const std::byte* address);

}  // namespace tilex
