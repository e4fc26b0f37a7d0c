# Runs a command and checks exactly how it ended.
#
#   cmake -DEXIT=N [-DTEXT=REGEX] [-DABSENT=REGEX] [-DLINES=N] -P check_run.cmake -- COMMAND...
#
# EXIT is the wanted exit code (a crash is none), TEXT must match standard output and error
# together, ABSENT must not, and LINES is the number of lines on standard error.

set(command "")
set(past_separator FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(position RANGE ${last})
  if(past_separator)
    list(APPEND command "${CMAKE_ARGV${position}}")
  elseif("${CMAKE_ARGV${position}}" STREQUAL "--")
    set(past_separator TRUE)
  endif()
endforeach()

execute_process(
  COMMAND ${command}
  RESULT_VARIABLE exit
  OUTPUT_VARIABLE output
  ERROR_VARIABLE error
)
message("${output}${error}")

if(NOT exit STREQUAL "${EXIT}")
  message(FATAL_ERROR "exit code ${exit}, not ${EXIT}")
endif()
if(DEFINED TEXT AND NOT "${output}${error}" MATCHES "${TEXT}")
  message(FATAL_ERROR "the output does not match: ${TEXT}")
endif()
if(DEFINED ABSENT AND "${output}${error}" MATCHES "${ABSENT}")
  message(FATAL_ERROR "the output matches: ${ABSENT}")
endif()
if(DEFINED LINES)
  string(REGEX MATCHALL "\n" newlines "${error}")
  list(LENGTH newlines found)
  if(NOT found EQUAL LINES)
    message(FATAL_ERROR "${found} lines on standard error, not ${LINES}")
  endif()
endif()
