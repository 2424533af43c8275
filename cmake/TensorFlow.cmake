# The target `tensorflow`, as libraries of other people have it, and what ours takes beyond that.
include(${PROJECT_SOURCE_DIR}/codegen/opwright_codegen/templates/native/tensorflow.cmake)
# Our library has a stamp beside it. A source that the build writes would differ between the
# versions of TensorFlow, for which a wheel has one recipe.
set_property(TARGET tensorflow PROPERTY INTERFACE_SOURCES)
# DLPack's header, which TensorFlow ships with its dependencies.
target_include_directories(tensorflow SYSTEM INTERFACE ${TF_INCLUDE}/external/dlpack/include)
# GCC collects garbage less often, in up to a gigabyte more of memory.
target_compile_options(tensorflow INTERFACE
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
if(NOT OPWRIGHT_SANITIZE)
  target_link_options(tensorflow INTERFACE -Wl,-s)
  # Precompiled, because these headers take most of the time that a file compiles. Sanitized
  # builds parse them in each file, so that each is seen to include what it uses.
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/tensorflow_headers.cc CONTENT "")
  add_library(tensorflow_headers OBJECT EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/tensorflow_headers.cc)
  target_link_libraries(tensorflow_headers PRIVATE tensorflow)
  target_precompile_headers(tensorflow_headers PRIVATE
    <tensorflow/core/framework/op.h> <tensorflow/core/framework/op_kernel.h>)
elseif(OPWRIGHT_SANITIZE MATCHES "undefined")
  # Where GCC checks for null, the addresses of functions are no constants to it, and
  # TensorFlow's headers want them to be. Its own classes come without what vptr needs.
  target_compile_options(tensorflow INTERFACE
    -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute,vptr)
endif()
if(OPWRIGHT_SANITIZE MATCHES "address")
  # Abseil's hash tables have a member more under ASan, and in TensorFlow's library they have not.
  target_compile_definitions(tensorflow INTERFACE NDEBUG_SANITIZER)
endif()
if(OPWRIGHT_SANITIZE MATCHES "thread")
  # Its messages have a member more where this is defined, and in its library they have not.
  target_compile_options(tensorflow INTERFACE -U__SANITIZE_THREAD__)
endif()
