/* Runs a SavedModel with ops of opwright's library, from C: what any program around
 * TensorFlow's C API does. docs/how-to/serving.md says how it is built and called. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

static TF_Status* status;

/* Ends the program if the last call failed. */
static void check(const char* what) {
  if (TF_GetCode(status) == TF_OK) return;
  fprintf(stderr, "%s: %s\n", what, TF_Message(status));
  exit(1);
}

/* "name:0", as signatures name tensors, in a graph. */
static TF_Output tensor_in(TF_Graph* graph, const char* name) {
  char operation[256];
  const char* colon = strchr(name, ':');
  const size_t length = colon ? (size_t)(colon - name) : strlen(name);
  if (length >= sizeof operation) {
    fprintf(stderr, "%s: too long a name\n", name);
    exit(1);
  }
  memcpy(operation, name, length);
  operation[length] = 0;
  TF_Output output = {TF_GraphOperationByName(graph, operation), colon ? atoi(colon + 1) : 0};
  if (output.oper == NULL) {
    fprintf(stderr, "%s: the model has no such tensor\n", name);
    exit(1);
  }
  return output;
}

static TF_Tensor* filled(TF_DataType type, const int64_t* sizes, int rank, const void* values,
                         size_t bytes) {
  TF_Tensor* tensor = TF_AllocateTensor(type, sizes, rank, bytes);
  memcpy(TF_TensorData(tensor), values, bytes);
  return tensor;
}

int main(int argc, char** argv) {
  if (argc != 8) {
    fprintf(stderr, "usage: serve LIBRARY MODEL START X IDS STATES ROWS\n");
    return 2;
  }
  status = TF_NewStatus();
  /* The one line that a program needs. "-" does without it. */
  if (strcmp(argv[1], "-") != 0) TF_LoadLibrary(argv[1], status);
  check("load the library");

  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[2], tags, 1, graph, NULL, status);
  check("load the model");

  /* Once: configures the tables of embeddings and fills them. */
  TF_Output start = tensor_in(graph, argv[3]);
  TF_Tensor* started = NULL;
  TF_SessionRun(session, NULL, NULL, NULL, 0, &start, &started, 1, NULL, 0, NULL, status);
  check("start");
  TF_DeleteTensor(started);

  float signal[10];
  for (int i = 0; i < 10; ++i) signal[i] = 0.1f * (float)i;
  const int32_t ids[4] = {3, 0, 3, 1};
  const int64_t signal_sizes[3] = {5, 1, 2};
  const int64_t ids_sizes[1] = {4};
  const TF_Output inputs[2] = {tensor_in(graph, argv[4]), tensor_in(graph, argv[5])};
  TF_Tensor* given[2] = {filled(TF_FLOAT, signal_sizes, 3, signal, sizeof signal),
                         filled(TF_INT32, ids_sizes, 1, ids, sizeof ids)};
  const TF_Output outputs[2] = {tensor_in(graph, argv[6]), tensor_in(graph, argv[7])};
  TF_Tensor* found[2] = {NULL, NULL};
  TF_SessionRun(session, NULL, inputs, given, 2, outputs, found, 2, NULL, 0, NULL, status);
  check("serve");

  for (int i = 0; i < 2; ++i) {
    const float* values = TF_TensorData(found[i]);
    const int64_t count = TF_TensorElementCount(found[i]);
    for (int64_t j = 0; j < count; ++j) printf("%.6f ", values[j]);
    printf("\n");
    TF_DeleteTensor(found[i]);
    TF_DeleteTensor(given[i]);
  }
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
