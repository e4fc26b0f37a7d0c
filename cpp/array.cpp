#include "array.h"

#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "error.h"

namespace tilex {
namespace {

constexpr std::size_t kBoundary = 64;  // a cache line, and TVM's own allocation alignment

}  // namespace

std::size_t checked_size(const std::vector<std::int64_t>& shape, std::size_t element_bytes) {
  std::size_t limit = std::numeric_limits<std::int64_t>::max() / element_bytes;
  std::size_t size = 1;
  for (std::int64_t extent : shape) {
    if (extent == 0) return 0;
  }
  for (std::int64_t extent : shape) {
    if (static_cast<std::size_t>(extent) > limit / size) {
      throw UsageError("an array of more than 2^63 - 1 bytes");
    }
    size *= static_cast<std::size_t>(extent);
  }
  return size;
}

std::size_t ArrayType::size() const { return checked_size(shape, element->bytes()); }

std::string ArrayType::text() const {
  std::string extents;
  for (std::int64_t extent : shape) {
    extents += (extents.empty() ? "" : "x") + std::to_string(extent);
  }
  return std::string(element->name) + " " + (shape.empty() ? "scalar" : extents);
}

Array::Array(ArrayType type, std::size_t offset) : type_(std::move(type)) {
  if (offset % type_.element->bytes() != 0) {
    throw UsageError("an offset of " + std::to_string(offset) + " bytes splits the elements of " +
                     type_.text());
  }
  const std::size_t bytes = type_.bytes();
  try {
    storage_.reset(new std::byte[bytes + offset + kBoundary]);
  } catch (const std::bad_alloc&) {
    throw UsageError("no memory for an array of " + std::to_string(bytes) + " bytes");
  }
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
  data_ = storage_.get() + (kBoundary - address % kBoundary) % kBoundary + offset;
  if (bytes != 0) std::memset(data_, 0xff, bytes);
}

std::size_t Array::offset() const {
  return reinterpret_cast<std::uintptr_t>(data_) % kBoundary;
}

}  // namespace tilex
