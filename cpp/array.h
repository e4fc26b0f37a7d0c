// A dense row-major array in this process's memory, at an address of the caller's choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "element_type.h"

namespace tilex {

// Element type and extents of an array: what a .npy header says.
struct ArrayType {
  const ElementType* element;
  std::vector<std::int64_t> shape;

  std::size_t size() const;                      // elements
  std::size_t bytes() const { return size() * element->bytes(); }
  std::string text() const;                      // "float32 3x4096"
};

// Elements of `shape`; throws UsageError where `element_bytes` times them passes 2^63 - 1 bytes.
std::size_t checked_size(const std::vector<std::int64_t>& shape, std::size_t element_bytes);

class Array {
 public:
  // The first element lies `offset` bytes past a 64-byte boundary, a multiple of the element's
  // size. Every byte starts as 0xFF, a NaN in each floating type, so that an element which is
  // never stored shows. Throws UsageError if the offset is no multiple or memory is lacking.
  Array(ArrayType type, std::size_t offset);

  const ArrayType& type() const { return type_; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t offset() const;  // bytes past the 64-byte boundary before the first element
  const std::byte* at(std::size_t index) const { return data_ + index * type_.element->bytes(); }

 private:
  ArrayType type_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* data_;
};

}  // namespace tilex
