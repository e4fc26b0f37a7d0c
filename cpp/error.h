// The one exception of the runner: a run that cannot be made, explained in one line.
#pragma once

#include <stdexcept>

namespace tilex {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tilex
