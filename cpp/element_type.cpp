#include "element_type.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>

namespace tilex {
namespace {

constexpr ElementType kTypes[] = {
    {"float32", "<f4", {kDLFloat, 32, 1}},   {"float16", "<f2", {kDLFloat, 16, 1}},
    {"bfloat16", "<u2", {kDLBfloat, 16, 1}}, {"int64", "<i8", {kDLInt, 64, 1}},
    {"int32", "<i4", {kDLInt, 32, 1}},       {"uint8", "|u1", {kDLUInt, 8, 1}},
    {"bool", "|b1", {kDLBool, 8, 1}},        {"float64", "<f8", {kDLFloat, 64, 1}},
};

template <typename T>
T read(const std::byte* address) {
  T value;  // arrays may start anywhere: no typed pointer into them
  std::memcpy(&value, address, sizeof value);
  return value;
}

double widen_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int fraction = bits & 0x3ff;
  double magnitude = std::ldexp(fraction + 1024.0, exponent - 25);
  if (exponent == 0) magnitude = std::ldexp(static_cast<double>(fraction), -24);
  if (exponent == 0x1f) {
    magnitude = fraction ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

double widen_bfloat16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

}  // namespace

const ElementType* element_type_named(std::string_view name) {
  for (const ElementType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

const ElementType* element_type_of_npy(std::string_view descr) {
  for (const ElementType& type : kTypes) {
    if (descr == type.npy) return &type;
  }
  return nullptr;
}

std::string element_type_names() {
  std::string names;
  for (const ElementType& type : kTypes) {
    names += names.empty() ? "" : ", ";
    names += type.name;
  }
  return names;
}

double load_float(const ElementType& type, const std::byte* address) {
  if (type.dlpack.code == kDLBfloat) return widen_bfloat16(read<std::uint16_t>(address));
  if (type.dlpack.bits == 16) return widen_half(read<std::uint16_t>(address));
  if (type.dlpack.bits == 32) return read<float>(address);
  return read<double>(address);
}

std::string element_text(const ElementType& type, const std::byte* address) {
  if (type.is_float()) {
    const double value = load_float(type, address);
    if (std::isnan(value)) return "nan";  // printf adds a sign that means nothing here
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    return text;
  }
  if (type.bytes() == 1) return std::to_string(read<std::uint8_t>(address));
  if (type.bytes() == 4) return std::to_string(read<std::int32_t>(address));
  return std::to_string(read<std::int64_t>(address));
}

}  // namespace tilex
