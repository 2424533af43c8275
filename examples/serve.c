/* Runs a SavedModel with ops of opwright's library, from C: what any program around
 * TensorFlow's C API does. docs/how-to/serving.md says how it is built and called. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tensorflow/c/c_api.h>

enum { kMost = 16 }; /* Inputs, outputs and dimensions. */

static const char kUsage[] =
    "usage: serve LIBRARY MODEL [-s TENSOR]... [-i TENSOR=SIZES:VALUES]... [-o TENSOR]...\n"
    "\n"
    "  LIBRARY  opwright's library; - does without it\n"
    "  MODEL    the folder of a SavedModel\n"
    "  -s       an output to compute once, before the others: it fills tables\n"
    "  -i       an input with its sizes and values, such as x:0=2,3:0.5,1,2\n"
    "           The values are repeated until the tensor is full.\n"
    "  -o       an output to print, in a line of its own\n";

static TF_Status* status;

static void fail(const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  exit(1);
}

/* Ends the program if the last call failed. */
static void check(const char* what) {
  if (TF_GetCode(status) != TF_OK) fail(what, TF_Message(status));
}

/* The tensor with a name as signatures have it, such as "name:0". */
static TF_Output tensor_in(TF_Graph* graph, const char* name) {
  char operation[1024];
  const char* colon = strrchr(name, ':');
  const size_t length = colon ? (size_t)(colon - name) : strlen(name);
  if (length >= sizeof operation) fail(name, "too long a name");
  memcpy(operation, name, length);
  operation[length] = 0;
  TF_Output output = {TF_GraphOperationByName(graph, operation), colon ? atoi(colon + 1) : 0};
  if (output.oper == NULL || output.index < 0 ||
      output.index >= TF_OperationNumOutputs(output.oper)) {
    fail(name, "the model has no such tensor");
  }
  return output;
}

/* The numbers in a text, of which commas stand between them; how many, at most `most`. */
static int numbers(const char* text, double* to, int most) {
  int count = 0;
  char* end = NULL;
  for (const char* at = text; *at; at = *end ? end + 1 : end) {
    const double value = strtod(at, &end);
    if (end == at || (*end && *end != ',') || count == most) fail(text, "no list of numbers");
    to[count++] = value;
  }
  return count;
}

static void put(TF_DataType type, void* data, int64_t i, double value) {
  if (type == TF_FLOAT) ((float*)data)[i] = (float)value;
  if (type == TF_DOUBLE) ((double*)data)[i] = value;
  if (type == TF_INT32) ((int32_t*)data)[i] = (int32_t)value;
  if (type == TF_INT64) ((int64_t*)data)[i] = (int64_t)value;
  if (type == TF_BOOL) ((uint8_t*)data)[i] = value != 0;
}

static void print(TF_DataType type, const void* data, int64_t i) {
  if (type == TF_FLOAT) printf("%.6f ", (double)((const float*)data)[i]);
  if (type == TF_DOUBLE) printf("%.6f ", ((const double*)data)[i]);
  if (type == TF_INT32) printf("%" PRId32 " ", ((const int32_t*)data)[i]);
  if (type == TF_INT64) printf("%" PRId64 " ", ((const int64_t*)data)[i]);
  if (type == TF_BOOL) printf("%d ", ((const uint8_t*)data)[i]);
}

static void need_type(const char* name, TF_DataType type) {
  if (type != TF_FLOAT && type != TF_DOUBLE && type != TF_INT32 && type != TF_INT64 &&
      type != TF_BOOL) {
    fail(name, "this program has float, double, int32, int64 and bool only");
  }
}

/* Reads NAME=SIZES:VALUES. */
static TF_Tensor* input(TF_Graph* graph, char* text, TF_Output* to) {
  char* sizes = strchr(text, '=');
  if (sizes == NULL) fail(text, "no TENSOR=SIZES:VALUES");
  *sizes++ = 0;
  char* values = strchr(sizes, ':');
  if (values == NULL) fail(sizes, "no SIZES:VALUES");
  *values++ = 0;
  *to = tensor_in(graph, text);
  const TF_DataType type = TF_OperationOutputType(*to);
  need_type(text, type);

  double read[kMost];
  const int rank = numbers(sizes, read, kMost);
  int64_t dims[kMost], elements = 1;
  for (int i = 0; i < rank; ++i) {
    dims[i] = (int64_t)read[i];
    if (dims[i] < 0 || dims[i] > INT32_MAX || elements > INT32_MAX) fail(text, "wrong sizes");
    elements *= dims[i];
  }
  const int most = (int)(strlen(values) / 2 + 1);
  double* each = malloc((size_t)most * sizeof *each);
  const int count = numbers(values, each, most);
  if (count == 0 && elements > 0) fail(text, "no values");
  TF_Tensor* tensor =
      TF_AllocateTensor(type, dims, rank, (size_t)elements * TF_DataTypeSize(type));
  for (int64_t i = 0; i < elements; ++i) {
    put(type, TF_TensorData(tensor), i, each[i % count]);
  }
  free(each);
  return tensor;
}

/* Computes outputs, with inputs fed. */
static void run(TF_Session* session, const char* what, const TF_Output* inputs,
                TF_Tensor* const* given, int fed, const TF_Output* outputs, TF_Tensor** found,
                int fetched) {
  TF_SessionRun(session, NULL, inputs, given, fed, outputs, found, fetched, NULL, 0, NULL,
                status);
  check(what);
}

int main(int argc, char** argv) {
  if (argc < 3 || argc % 2 == 0) {
    fputs(kUsage, stderr);
    return 2;
  }
  status = TF_NewStatus();
  /* The one line that a program needs. */
  if (strcmp(argv[1], "-") != 0) TF_LoadLibrary(argv[1], status);
  check("load the library");

  TF_Graph* graph = TF_NewGraph();
  TF_SessionOptions* options = TF_NewSessionOptions();
  const char* tags[] = {"serve"};
  TF_Session* session =
      TF_LoadSessionFromSavedModel(options, NULL, argv[2], tags, 1, graph, NULL, status);
  check("load the model");

  TF_Output inputs[kMost], outputs[kMost];
  TF_Tensor *given[kMost], *found[kMost] = {NULL};
  int fed = 0, fetched = 0;
  for (int i = 3; i < argc; i += 2) {
    char* const text = argv[i + 1];
    if (fed == kMost || fetched == kMost) fail(text, "too many tensors");
    if (strcmp(argv[i], "-s") == 0) {
      const TF_Output start = tensor_in(graph, text);
      TF_Tensor* started = NULL;
      run(session, "start", NULL, NULL, 0, &start, &started, 1);
      TF_DeleteTensor(started);
    } else if (strcmp(argv[i], "-i") == 0) {
      given[fed] = input(graph, text, &inputs[fed]);
      ++fed;
    } else if (strcmp(argv[i], "-o") == 0) {
      outputs[fetched] = tensor_in(graph, text);
      need_type(text, TF_OperationOutputType(outputs[fetched]));
      ++fetched;
    } else {
      fputs(kUsage, stderr);
      return 2;
    }
  }
  run(session, "serve", inputs, given, fed, outputs, found, fetched);

  for (int i = 0; i < fetched; ++i) {
    const int64_t count = TF_TensorElementCount(found[i]);
    for (int64_t j = 0; j < count; ++j) {
      print(TF_TensorType(found[i]), TF_TensorData(found[i]), j);
    }
    printf("\n");
    TF_DeleteTensor(found[i]);
  }
  for (int i = 0; i < fed; ++i) TF_DeleteTensor(given[i]);
  TF_CloseSession(session, status);
  TF_DeleteSession(session, status);
  TF_DeleteSessionOptions(options);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
