# The target `tensorflow`: headers, flags and libraries of the interpreter's TensorFlow.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
# One line for each of the lists that a build needs, and the version.
execute_process(
  COMMAND ${Python3_EXECUTABLE} -c "
import tensorflow as tf
flags = tf.sysconfig.get_compile_flags()
print(';'.join(f[2:] for f in flags if f.startswith('-D')))
print(tf.sysconfig.get_include())
print(tf.sysconfig.get_lib())
print(tf.__version__)"
  OUTPUT_VARIABLE FOUND OUTPUT_STRIP_TRAILING_WHITESPACE
  RESULT_VARIABLE FAILED ERROR_VARIABLE WHY)
if(FAILED)
  message(FATAL_ERROR "${Python3_EXECUTABLE} cannot import tensorflow:\n${WHY}")
endif()
string(REPLACE ";" "|" FOUND "${FOUND}")
string(REPLACE "\n" ";" FOUND "${FOUND}")
list(GET FOUND 0 TF_DEFINITIONS)
string(REPLACE "|" ";" TF_DEFINITIONS "${TF_DEFINITIONS}")
list(GET FOUND 1 TF_INCLUDE)
list(GET FOUND 2 TF_LIB)
list(GET FOUND 3 TF_VERSION)
message(STATUS "TensorFlow ${TF_VERSION} in ${TF_LIB}")

add_library(tensorflow INTERFACE)
# XLA's headers want two that TensorFlow keeps with its dependencies.
target_include_directories(tensorflow SYSTEM INTERFACE ${TF_INCLUDE}
  ${TF_INCLUDE}/external/highwayhash
  ${TF_INCLUDE}/external/farmhash_archive/src)
if(TF_VERSION VERSION_GREATER_EQUAL 2.19 AND TF_VERSION VERSION_LESS 2.20)
  target_include_directories(tensorflow SYSTEM INTERFACE
    ${PROJECT_SOURCE_DIR}/cmake/tensorflow-2.19)
endif()
target_compile_definitions(tensorflow INTERFACE ${TF_DEFINITIONS})
# The interpreter has loaded TensorFlow by the time it loads what is linked here.
target_link_options(tensorflow INTERFACE -L${TF_LIB})
if(NOT OPWRIGHT_SANITIZE)
  target_link_options(tensorflow INTERFACE -Wl,-s)
elseif(OPWRIGHT_SANITIZE MATCHES "undefined")
  # Where GCC checks for null, the addresses of functions are no constants to it, and
  # TensorFlow's headers want them to be. Its own classes come without what vptr asks.
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
target_link_libraries(tensorflow INTERFACE -l:libtensorflow_framework.so.2
  -l:libtensorflow_cc.so.2)
