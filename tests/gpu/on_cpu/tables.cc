// The host's part of the backend; launch.h is the one in this folder.
#include "embedding/cuda/tables.cu"
