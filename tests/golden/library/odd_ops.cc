// Custom ops with one oddity each. A kernel says which attrs reached it, or passes its
// inputs on.

#include <cstring>
#include <map>
#include <string>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/full_type_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace odd_ops {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ScalarShape;

// Its output is the text of all attrs, sorted by name.
class SayAttrs : public OpKernel {
 public:
  explicit SayAttrs(OpKernelConstruction* c) : OpKernel(c) {
    std::map<std::string, std::string> texts;
    for (const auto& [name, value] : c->def().attr()) {
      if (name[0] != '_') texts[name] = tensorflow::SummarizeAttrValue(value);
    }
    for (const auto& [name, text] : texts) {
      absl::StrAppend(&said_, said_.empty() ? "" : "; ", name, "=", text);
    }
  }

  void Compute(OpKernelContext* c) override {
    Tensor* said;
    OP_REQUIRES_OK(c, c->allocate_output(0, TensorShape({}), &said));
    said->scalar<tstring>()() = said_;
  }

 private:
  std::string said_;
};

// The first outputs are its inputs, the others scalar zeros or empty texts.
class PassOn : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    for (int i = 0; i < c->num_outputs(); ++i) {
      if (i < c->num_inputs()) {
        c->set_output(i, c->input(i));
        continue;
      }
      Tensor zero(c->expected_output_dtype(i), TensorShape({}));
      if (zero.dtype() != tensorflow::DT_STRING) {
        std::memset(zero.data(), 0, zero.TotalBytes());
      }
      c->set_output(i, zero);
    }
  }
};

// Its output is the value of the attr `value`.
class TensorAttr : public OpKernel {
 public:
  explicit TensorAttr(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("value", &value_));
  }

  void Compute(OpKernelContext* c) override { c->set_output(0, value_); }

 private:
  Tensor value_;
};

#define CPU_KERNEL(name, kernel) \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU), kernel)

// Attrs.

REGISTER_OP("OddLists")
    .Output("said: string")
    .Attr("ints: list(int) = [1, -2]")
    .Attr("floats: list(float) = []")
    .Attr("bools: list(bool) = [true]")
    .Attr("strings: list(string) = ['a', '']")
    .Attr("types: list(type) = [DT_FLOAT, DT_STRING]")
    .Attr("shapes: list(shape) = [{ unknown_rank: true }, { dim { size: 2 } }]")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddLists", SayAttrs);

REGISTER_OP("OddRequired")
    .Output("said: string")
    .Attr("i: int")
    .Attr("f: float")
    .Attr("b: bool")
    .Attr("s: string")
    .Attr("t: type")
    .Attr("shape: shape")
    .Attr("value: tensor")
    .Attr("last: int = 0")
    .Attr("sizes: list(int) >= 1")
    .Attr("dtypes: list(type)")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddRequired", SayAttrs);

REGISTER_OP("OddFunction").Output("said: string").Attr("f: func").SetShapeFn(ScalarShape);
CPU_KERNEL("OddFunction", SayAttrs);

REGISTER_OP("OddFunctions")
    .Output("said: string")
    .Attr("branches: list(func) >= 1")
    .Attr("spare: list(func) = []")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddFunctions", SayAttrs);

REGISTER_OP("OddTensors")
    .Output("output: int32")
    .Attr(
        "value: tensor = { dtype: DT_INT32 tensor_shape { dim { size: 2 } "
        "dim { size: 1 } } int_val: 1 int_val: -2 }")
    .Attr(
        "words: tensor = { dtype: DT_STRING tensor_shape { dim { size: 2 } } "
        "string_val: 'a' string_val: '' }");
CPU_KERNEL("OddTensors", TensorAttr);

REGISTER_OP("OddTensorLists")
    .Output("said: string")
    .Attr("must: list(tensor) >= 1")
    .Attr("may: list(tensor) = []")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddTensorLists", SayAttrs);

REGISTER_OP("OddShapes")
    .Output("said: string")
    .Attr("unknown: shape = { unknown_rank: true }")
    .Attr("scalar: shape = {}")
    .Attr("matrix: shape = { dim { size: -1 } dim { size: 2 } }")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddShapes", SayAttrs);

REGISTER_OP("OddNumbers")
    .Output("said: string")
    .Attr("high: float = inf")
    .Attr("low: float = -inf")
    .Attr("tenth: float = 0.1")
    .Attr("tiny: float = 1e-7")
    .Attr("least: int = -9223372036854775808")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddNumbers", SayAttrs);

REGISTER_OP("OddTexts")
    .Output("said: string")
    .Attr(R"(quotes: string = 'it\'s "so"')")
    .Attr(R"(escapes: string = 'C:\\new\n\ttab')")
    .Attr("empty: string = ''")
    .Attr("yes: string = 'no'")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddTexts", SayAttrs);

REGISTER_OP("OddNan")
    .Output("said: string")
    .Attr("f: float = nan")
    .Attr("fs: list(float) = [1, nan]")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddNan", SayAttrs);

REGISTER_OP("OddBytes")
    .Output("said: string")
    .Attr(R"(s: string = '\xff\x00"')")
    .Attr(R"(ss: list(string) = ['\xfe', 'a'])")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddBytes", SayAttrs);

REGISTER_OP("OddNamedDims")
    .Output("said: string")
    .Attr("shape: shape = { dim { size: -1 name: 'rows' } dim { size: 2 } }")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddNamedDims", SayAttrs);

REGISTER_OP("OddFunctionDefault")
    .Output("said: string")
    .Attr("f: func = { name: 'f' attr { key: 'n' value { i: 1 } } }")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddFunctionDefault", SayAttrs);

REGISTER_OP("OddHalf")
    .Output("output: half")
    .Attr(
        "value: tensor = { dtype: DT_HALF tensor_shape { dim { size: 3 } } "
        "half_val: 15360 half_val: 11878 }");
CPU_KERNEL("OddHalf", TensorAttr);

REGISTER_OP("OddPacked")
    .Output("output: bfloat16")
    .Attr(
        "value: tensor = { dtype: DT_BFLOAT16 tensor_shape { dim { size: 1 } "
        "dim { size: 2 } } tensor_content: '\\200\\077\\315\\075' }")
    .Attr("zeros: tensor = { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } }")
    .Attr(
        "complex: tensor = { dtype: DT_COMPLEX64 tensor_shape {} "
        "scomplex_val: 0.5 scomplex_val: inf }");
CPU_KERNEL("OddPacked", TensorAttr);

REGISTER_OP("OddEnums")
    .Output("said: string")
    .Attr("must: {'a', 'b c', ''}")
    .Attr("mode: {'fast', 'good'} = 'good'")
    .Attr("modes: list({'x', 'y'}) >= 0 = ['x']")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddEnums", SayAttrs);

REGISTER_OP("OddMinimum")
    .Output("said: string")
    .Attr("depth: int >= 2")
    .Attr("width: int >= -1 = 0")
    .Attr("sizes: list(int) >= 2 = [1, 2]")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddMinimum", SayAttrs);

REGISTER_OP("OddListDefaults")
    .Output("said: string")
    .Attr("shapes: list(shape) >= 1 = [{}, { dim { size: -1 name: 'n' } }]")
    .Attr("functions: list(func) = [{ name: 'f' }]")
    .Attr("tensors: list(tensor) = [{ dtype: DT_INT32 tensor_shape {} int_val: 1 }]")
    .Attr("dtypes: list({float, int32, bfloat16}) >= 2 = [DT_INT32, DT_INT32]")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddListDefaults", SayAttrs);

REGISTER_OP("OddHuge")
    .Output("said: string")
    .Attr("most: int = 9223372036854775807")
    .Attr("least: int >= -9223372036854775808 = 0")
    .Attr("last: int >= 9223372036854775807 = 9223372036854775807")
    .Attr("most_float: float = 3.4028235e38")
    .Attr("least_float: float = 1.4e-45")
    .Attr("negative: float = -0.0")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddHuge", SayAttrs);

REGISTER_OP("OddChoices")
    .Output("said: string")
    .Attr(R"(mode: {'it\'s', '"so"', 'a, b', 'back\\slash', '{x}', 'é', ' '} = 'it\'s')")
    .Attr(R"(modes: list({'"', '\'', 'true', '0'}) = ['"', '\''])")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddChoices", SayAttrs);

// Inputs and outputs.

REGISTER_OP("OddNothing").SetIsStateful();
CPU_KERNEL("OddNothing", PassOn);

REGISTER_OP("OddNoInput").Output("output: float").SetShapeFn(ScalarShape);
CPU_KERNEL("OddNoInput", PassOn);

REGISTER_OP("OddNoOutput").Input("values: N * T").Attr("N: int").Attr("T: type");
CPU_KERNEL("OddNoOutput", PassOn);

REGISTER_OP("OddRef")
    .Input("ref: Ref(T)")
    .Input("value: T")
    .Output("output_ref: Ref(T)")
    .Attr("T: type")
    .SetAllowsUninitializedInput();

REGISTER_OP("OddInferred")
    .Input("x: T")
    .Input("more: N * float")
    .Output("y: T")
    .Attr("T: {float, int32} = DT_FLOAT")
    .Attr("N: int >= 0 = 0");
CPU_KERNEL("OddInferred", PassOn);

REGISTER_OP("OddCounts")
    .Input("a: N * int32")
    .Input("b: N * T")
    .Input("c: M * T")
    .Output("x: N * int32")
    .Output("y: N * T")
    .Output("z: M * T")
    .Attr("N: int >= 1")
    .Attr("M: int >= 0")
    .Attr("T: type");
CPU_KERNEL("OddCounts", PassOn);

REGISTER_OP("OddListOutput").Output("outputs: count * float").Attr("count: int >= 0");
CPU_KERNEL("OddListOutput", PassOn);

REGISTER_OP("OddMixed")
    .Input("inputs: Tin")
    .Output("outputs: Tin")
    .Output("made: Tmade")
    .Attr("Tin: list(type) >= 0")
    .Attr("Tmade: list({float, int32, string})");
CPU_KERNEL("OddMixed", PassOn);

REGISTER_OP("OddMany")
    .Input("a01: float")
    .Input("a02: float")
    .Input("a03: float")
    .Input("a04: float")
    .Input("a05: float")
    .Input("a06: float")
    .Input("a07: float")
    .Input("a08: float")
    .Input("a09: float")
    .Input("a10: float")
    .Input("a11: float")
    .Input("a12: float")
    .Input("a13: float")
    .Input("a14: float")
    .Input("a15: float")
    .Input("a16: float")
    .Input("a17: float")
    .Input("a18: float")
    .Input("a19: float")
    .Input("a20: float")
    .Input("a21: float")
    .Input("a22: float")
    .Input("a23: float")
    .Input("a24: float")
    .Input("a25: float")
    .Input("a26: float")
    .Input("a27: float")
    .Input("a28: float")
    .Input("a29: float")
    .Input("a30: float")
    .Input("a31: float")
    .Input("a32: float")
    .Input("a33: float")
    .Input("a34: float")
    .Input("a35: float")
    .Input("a36: float")
    .Input("a37: float")
    .Input("a38: float")
    .Input("a39: float")
    .Input("a40: float")
    .Output("y: float");
CPU_KERNEL("OddMany", PassOn);

REGISTER_OP("OddListDefault")
    .Input("values: Ts")
    .Output("y: Ts")
    .Attr("Ts: list({float, int32}) >= 2 = [DT_FLOAT, DT_INT32]");
CPU_KERNEL("OddListDefault", PassOn);

REGISTER_OP("OddRefs")
    .Input("refs: Ref(N * T)")
    .Input("one: Ref(float)")
    .Output("same: Ref(N * T)")
    .Attr("N: int >= 2")
    .Attr("T: {float, half}");

REGISTER_OP("OddHandles")
    .Input("handle: resource")
    .Input("data: variant")
    .Input("handles: N * resource")
    .Output("same: resource")
    .Output("more: variant")
    .Attr("N: int >= 0")
    .SetIsStateful()
    .SetIsDistributedCommunication();
CPU_KERNEL("OddHandles", PassOn);

REGISTER_OP("OddDtypes")
    .Input("a: qint8")
    .Input("b: complex128")
    .Input("c: uint64")
    .Input("d: int4")
    .Input("e: float8_e5m2")
    .Output("y: T")
    .Attr("T: {qint32, uint4, half, resource, variant} = DT_HALF");

REGISTER_OP("OddFull")
    .Input("x: T")
    .Output("y: variant")
    .Attr("T: type")
    .SetTypeConstructor(tensorflow::full_type::UnaryGeneric(tensorflow::TFT_ARRAY));

// dtypes that are arguments.

REGISTER_OP("OddRequiredDtype")
    .Input("x: float")
    .Output("same: float")
    .Output("output: dtype")
    .Attr("dtype: {int32, int64}");
CPU_KERNEL("OddRequiredDtype", PassOn);

REGISTER_OP("OddDefaultDtype")
    .Input("like: T")
    .Output("same: T")
    .Output("output: out_type")
    .Attr("T: type")
    .Attr("out_type: {float, int32, string} = DT_INT32");
CPU_KERNEL("OddDefaultDtype", PassOn);

REGISTER_OP("OddTwoDtypes")
    .Output("a: Ta")
    .Output("b: Tb")
    .Attr("Ta: {float, int32} = DT_FLOAT")
    .Attr("seed: int = 0")
    .Attr("Tb: type = DT_INT64");
CPU_KERNEL("OddTwoDtypes", PassOn);

REGISTER_OP("OddSilentDtype")
    .Output("said: string")
    .Attr("dtype: {float, int32} = DT_FLOAT")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddSilentDtype", SayAttrs);

// Names.

REGISTER_OP("OddReserved")
    .Input("in: float")
    .Input("lambda: float")
    .Output("is: float")
    .Output("not: float")
    .Attr("class: int")
    .Attr("def: int = 0");
CPU_KERNEL("OddReserved", PassOn);

REGISTER_OP("OddCollisions")
    .Input("scope: float")
    .Input("name: int32")
    .Input("bytes: T2")
    .Input("self: T3")
    .Output("op: float")
    .Output("inputs: int32")
    .Output("create: T2")
    .Output("options: T3")
    .Attr("T: type")
    .Attr("T2: type")
    .Attr("T3: type")
    .Attr("U: int = 0")
    .Attr("Output: int = 0");
CPU_KERNEL("OddCollisions", PassOn);

REGISTER_OP("OddMembers")
    .Output("said: string")
    .Attr("as_dict: bool = true")
    .Attr("merge: bool = true")
    .Attr("explicit: bool = true")
    .Attr("Literal: bool = true")
    .Attr("attribute_names: bool = true")
    .Attr("int: {'int', 'str'} = 'int'")
    .SetShapeFn(ScalarShape);
CPU_KERNEL("OddMembers", SayAttrs);

REGISTER_OP("Lambda").Input("x: float").Output("y: float");
CPU_KERNEL("Lambda", PassOn);

// What every generated file has of its own.
REGISTER_OP("Op").Input("x: float").Output("y: float").Output("z: float");
CPU_KERNEL("Op", PassOn);

REGISTER_OP("Addons>OddSpace").Input("x: float").Output("y: float");
CPU_KERNEL("Addons>OddSpace", PassOn);

REGISTER_OP("OddBuiltins")
    .Input("type: float")
    .Input("list: int32")
    .Input("str: T")
    .Output("tuple: float")
    .Output("print: int32")
    .Output("staticmethod: T")
    .Attr("T: type")
    .Attr("isinstance: int = 0")
    .Attr("tf: int = 0")
    .Attr("np: int = 0")
    .Attr("None: int = 3");
CPU_KERNEL("OddBuiltins", PassOn);

REGISTER_OP("OddCase")
    .Input("t: T")
    .Input("n: N * int32")
    .Output("y: T")
    .Output("y_: float")
    .Attr("T: type")
    .Attr("N: int");
CPU_KERNEL("OddCase", PassOn);

REGISTER_OP("Odd>Deep>Space_2").Input("x: float").Output("y: float");
CPU_KERNEL("Odd>Deep>Space_2", PassOn);

// What is written about an op.

REGISTER_OP("OddProse")
    .Input("x: float")
    .Output("y: float")
    .Attr("gain: float = 1.0")
    .Doc("Prose that an import leaves out.");
CPU_KERNEL("OddProse", PassOn);

REGISTER_OP("OddDeprecated")
    .Input("x: float")
    .Output("y: float")
    .SetIsCommutative()
    .Deprecated(7, "Use \"OddProse\" instead");
CPU_KERNEL("OddDeprecated", PassOn);

REGISTER_OP("OddAggregate")
    .Input("x: N * T")
    .Output("sum: T")
    .Attr("N: int >= 1")
    .Attr("T: {float, double}")
    .SetIsAggregate()
    .Deprecated(0, "");

REGISTER_OP("OddMarkdown")
    .Input("x: float")
    .Output("y: float")
    .Attr("mode: {'a', 'b'} = 'a'")
    .Doc(R"doc(
Schätzt `x`: “quoted” \ and '''three''' and """three""".

# A title

Text with *stars*, a [link](https://example.com/a_b?c=d&e=%20), `code \n` and a
second row: \frac{a}{b} \u0041 {braces} {{ two }} %s $HOME <b>&amp;</b>

| a | b |
|---|---|
| 1 | 2 |

* one
  goes on
* two
  - nested

> said by somebody

```python
odd_markdown(1.0)  # """
```

    indented code \x

mode: 'a' is `"a"`;
  'b' is \b.
x: ünïcode 𝒳, "quoted" at the end"
y: ends in a backslash \
)doc");
CPU_KERNEL("OddMarkdown", PassOn);

REGISTER_OP("OddSections")
    .Input("x: N * T")
    .Output("sum: T")
    .Output("count: int32")
    .Attr("N: int >= 2")
    .Attr("T: {float, half}")
    .Attr("scale: float = 0.5")
    .Attr("size: int >= 1")
    .Doc(R"doc(
Adds what it is given

and scales that. Twice.

  Args:
    x: What is added.
    scale: What the sum is
      multiplied with.
    size (int): Of what.
  Returns:
    sum: All of it.
    count: How many there were.

  Raises:
    Nothing at all.
)doc");

}  // namespace odd_ops
