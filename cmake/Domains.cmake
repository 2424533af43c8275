# How every library of the house is compiled and tested.

set(WARNING_FLAGS -Wall -Wextra)
# Sizes come from outside: where they change their type, the code says so. Where an index is
# the only thing that does, a sign may change unsaid: sizes are int64_t here and size_t in the
# library, which would hide in casts what the bounds of sizes are for.
set(EXACT_FLAGS
  $<$<CXX_COMPILER_ID:GNU>:-Wconversion;-Werror=conversion;-Werror=float-conversion>)
# For what parses bytes from outside: here a sign is said as well.
set(SIGNED_FLAGS
  $<$<CXX_COMPILER_ID:GNU>:-Wsign-conversion;-Werror=sign-conversion>)
# For inner loops: products and sums fuse, and vectors wider than the ABI's are never passed
# between files.
set(KERNEL_FLAGS -ffp-contract=fast -Wno-psabi)
# For plain loops that become vectors.
set(LOOP_FLAGS -fno-math-errno -fno-trapping-math)
if(NOT OPWRIGHT_SANITIZE) # With checks in every line, that takes minutes.
  list(APPEND LOOP_FLAGS -O3)
endif()
# All aarch64 has NEON. GCC generates the same code for Armv8.2 with float16 and dot products.
# Without this flag it loads factors so early that sums no longer fit into the registers.
set(NEON_FLAGS -fno-schedule-insns)
set(AVX2_FLAGS -mavx2 -mfma)
set(AVX512_FLAGS -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma)

# Compiles this many files of a target as one, because headers take most of the time that a file
# compiles. Files with options of their own stay alone. So do all files where sanitized, so that
# each is seen to include what it uses.
function(opwright_together target files)
  if(files AND NOT OPWRIGHT_SANITIZE)
    set_target_properties(${target} PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
  endif()
endfunction()

# opwright_library(NAME [OBJECT] [SMALL] SOURCES ... [SIGNED ...] [TOGETHER FILES] [LINKS ...]):
# sources of a folder. SMALL ones run while XLA compiles, and a wheel has them for each TensorFlow.
function(opwright_library name)
  cmake_parse_arguments(ARG "OBJECT;SMALL" "TOGETHER" "SOURCES;SIGNED;LINKS" ${ARGN})
  if(ARG_OBJECT) # What registers itself is not called by name.
    add_library(${name} OBJECT ${ARG_SOURCES} ${ARG_SIGNED})
  else()
    add_library(${name} STATIC ${ARG_SOURCES} ${ARG_SIGNED})
  endif()
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/runtime/native)
  target_compile_options(${name} PRIVATE ${WARNING_FLAGS} ${EXACT_FLAGS})
  if(ARG_SIGNED)
    set_property(SOURCE ${ARG_SIGNED} APPEND PROPERTY COMPILE_OPTIONS ${SIGNED_FLAGS})
  endif()
  target_link_libraries(${name} PUBLIC ${ARG_LINKS})
  opwright_together(${name} "${ARG_TOGETHER}")
  if(ARG_SMALL)
    target_compile_options(${name} PRIVATE -Os)
  elseif(TARGET tensorflow_headers AND "tensorflow" IN_LIST ARG_LINKS)
    target_precompile_headers(${name} REUSE_FROM tensorflow_headers)
  endif()
endfunction()

# Declares XLA's client in place of its headers: base/tf/xla_op_kernel.h. This only saves time.
# Other versions may need more of the client than its name.
function(opwright_declares_xla_client target)
  if(TF_VERSION VERSION_GREATER_EQUAL 2.21 AND TF_VERSION VERSION_LESS 2.22)
    target_compile_definitions(${target} PRIVATE OPWRIGHT_DECLARE_XLA_CLIENT)
  endif()
endfunction()

# opwright_isa_sources(TARGET STEM FLAGS ...): STEM{portable,neon,avx2,avx512}.cc, each compiled
# for its instruction set, with these flags.
function(opwright_isa_sources target stem)
  target_sources(${target} PRIVATE ${stem}portable.cc)
  # Few processors need these, and a wheel has them for each TensorFlow.
  set_source_files_properties(${stem}portable.cc PROPERTIES COMPILE_OPTIONS
    "${ARGN};-Os")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    target_sources(${target} PRIVATE ${stem}avx2.cc ${stem}avx512.cc)
    set_source_files_properties(${stem}avx2.cc PROPERTIES COMPILE_OPTIONS
      "${ARGN};${AVX2_FLAGS}")
    set_source_files_properties(${stem}avx512.cc PROPERTIES COMPILE_OPTIONS
      "${ARGN};${AVX512_FLAGS}")
  elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    target_sources(${target} PRIVATE ${stem}neon.cc)
    set_source_files_properties(${stem}neon.cc PROPERTIES COMPILE_OPTIONS
      "${ARGN};${NEON_FLAGS}")
  endif()
endfunction()

# opwright_tests(DOMAIN [CUDA] SOURCES ... [TOGETHER FILES] LINKS ...): the program DOMAIN_test;
# ctest runs each of its files by itself. Those of the CUDA backend have a target and a label
# of their own, because the backend is experimental.
add_custom_target(unit_tests)
add_custom_target(cuda_tests)
function(opwright_tests domain)
  cmake_parse_arguments(ARG "CUDA" "TOGETHER" "SOURCES;LINKS" ${ARGN})
  add_executable(${domain}_test EXCLUDE_FROM_ALL ${ARG_SOURCES})
  # -O1, because a test takes longer to compile than to run.
  target_compile_options(${domain}_test PRIVATE ${WARNING_FLAGS} -O1)
  target_link_libraries(${domain}_test PRIVATE opwright_testing ${ARG_LINKS})
  opwright_together(${domain}_test "${ARG_TOGETHER}")
  # Precompiled by the first of these programs, where not sanitized: see TensorFlow.cmake.
  if(NOT OPWRIGHT_SANITIZE AND domain STREQUAL "base")
    target_precompile_headers(base_test PRIVATE
      <algorithm> <cmath> <cstdint> <functional> <future> <limits> <map> <memory> <mutex> <set>
      <sstream> <string> <thread> <utility> <vector>)
  elseif(NOT OPWRIGHT_SANITIZE)
    target_precompile_headers(${domain}_test REUSE_FROM base_test)
  endif()
  if(ARG_CUDA)
    add_dependencies(cuda_tests ${domain}_test)
  else()
    add_dependencies(unit_tests ${domain}_test)
  endif()
  # Sources with other names help the tests, and have none.
  list(FILTER ARG_SOURCES INCLUDE REGEX "_test\\.cc$")
  foreach(source ${ARG_SOURCES})
    # The suite of packing_test.cc is Packing, of weight_cache_test.cc WeightCache.
    get_filename_component(stem ${source} NAME_WE)
    string(REGEX REPLACE "_test$" "" stem ${stem})
    string(REPLACE "_" ";" words ${stem})
    set(suite "")
    foreach(word ${words})
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND suite ${first}${rest})
    endforeach()
    add_test(NAME ${domain}.${stem} COMMAND ${domain}_test ${suite}.)
    if(ARG_CUDA)
      set_tests_properties(${domain}.${stem} PROPERTIES LABELS cuda)
    endif()
  endforeach()
endfunction()
