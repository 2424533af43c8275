// The host's part of the backend; launch.h is the one beside this file.
#include "embedding/cuda/tables.cu"
