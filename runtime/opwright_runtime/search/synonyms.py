"""The field's words for the same thing, by which ops are asked for.

An op, or a function, that is called what a row says is called all of that row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

_SAME: Final = """
cumulative sum = cumsum, running total, running sum, prefix sum, scan sum
cumulative product = cumprod, running product, prefix product
matmul = matrix product, matrix multiplication, multiply matrices, dot product, gemm
batch matmul = stack matrices multiply, batched matrix product, bmm
einsum = einstein summation, einstein notation, tensor contraction, tensordot
self adjoint eig = eigenvalues symmetric, eigh, hermitian eigenvalues
matrix inverse = invert matrix, inverse matrix, inv
matrix solve = solve linear, linear system, linear equations
matrix solve ls = least squares, lstsq
svd = singular value decomposition, singular values
cholesky = factor positive definite
qr = orthogonal triangular decomposition, gram schmidt
lu = triangular factors, pivoting
matrix determinant = det, determinant
matrix diag = diagonal matrix, diag
matrix band part = triangle, upper triangular, lower triangular, tril, triu
trace = sum diagonal
arg max = argmax, index largest, position maximum
arg min = argmin, index smallest, position minimum
top k = largest entries, k largest, greatest values, best k
in top k = top k accuracy
unique = duplicates, distinct, deduplicate, dedup
bincount = count occurrences, histogram integers, frequencies
histogram fixed width = histogram, bucket counts, distribution values
sort = order ascending, ordered
reverse = flip, backwards, mirror order
transpose = swap axes, permute axes, permute dimensions
reshape = flatten, change shape, view, ravel
expand dims = add dimension, unsqueeze, new axis
squeeze = drop dimension, remove dimension size 1
concat = concatenate, join tensors, append
split = chunk, pieces, divide tensor
pack = stack, stack tensors, new axis
unpack = unstack, unbind
pad = padding, zeros around
tile = repeat, replicate, copies
broadcast to = expand shape, broadcast
one hot = one hot encoding, indicator, dummy variables
gather = look up rows, lookup, index select, take rows, embedding lookup
gather nd = index multi dimensional, fancy indexing
scatter nd = write rows index, put at indices
scatter add = add rows index, index add
boolean mask = where, nonzero, indices of true
select = where, masked fill, choose elementwise, if else elementwise, ternary
clip by value = clip, clamp, limit range, bound values
abs = absolute value, magnitude, modulus
neg = negative, negate, minus
sign = signum
reciprocal = inverse elementwise, one over
pow = power, exponent, raise
square = second power, squared
sqrt = square root
rsqrt = inverse square root
exp = exponential
log = logarithm, natural log
log1p = log one plus
erf = error function, gauss error
lgamma = log gamma, gamma function
digamma = psi
round = nearest integer
floor = round down
ceil = round up, ceiling
floor mod = modulo, remainder
squared difference = squared error, mse
relu = rectified linear, rectifier
sigmoid = logistic
tanh = hyperbolic tangent
elu = exponential linear
selu = self normalizing
softplus = smooth relu
softmax = normalized exponential, probabilities from logits
log softmax = log probabilities
softmax cross entropy with logits = cross entropy loss, classification loss
sparse softmax cross entropy with logits = cross entropy class indices
reduce std = standard deviation, std
reduce variance = variance, var
euclidean norm = norm, l2 norm, vector length
l2 loss = half sum squares, weight decay
conv 2d = 2d convolution, convolve images, two dimensional convolution
conv 3d = 3d convolution, volumetric
conv2d backprop input = transposed convolution, deconvolution
depthwise conv2d native = depthwise convolution, separable
dilation 2d = morphological, dilate
max pool = maximum pooling
avg pool = average pooling, mean pooling
fused batch norm = batch normalization, layer normalization
lrn = local response normalization
bias add = add bias
dropout = randomly zero
gru block cell = gru, gated recurrent unit, recurrent network, rnn
cudnn rnn = lstm, gru, recurrent network, recurrent layer, rnn
block lstm = lstm, long short term memory, recurrent network, recurrent layer, rnn
ctc loss = connectionist temporal classification, speech recognition loss
ctc beam search decoder = beam search, beam decoder
nth element = kth smallest, median, quantile
sum = reduce sum, add up, total
mean = average, reduce mean
prod = product elements, reduce prod
max = maximum elements, reduce max, largest
min = minimum elements, reduce min, smallest
any = logical or reduce
all = logical and reduce
segment sum = group by sum, sum by group
sparse segment sum = embedding bag
sparse segment mean = embedding bag
segment mean = group by mean, average by group
apply gradient descent = sgd, gradient step
apply adam = adam update, adam optimizer
apply adagrad = adagrad optimizer
apply ftrl = follow the regularized leader
apply rms prop = rmsprop
apply momentum = momentum optimizer, nesterov
random standard normal = gaussian, normal random, randn
random uniform = rand, uniform random
truncated normal = truncated gaussian
random shuffle = random permutation, shuffle rows, permute randomly
multinomial = categorical, sample classes, draw class, sample logits
random gamma = gamma distribution
random poisson = poisson distribution
decode jpeg = jpg, load jpeg
encode jpeg = save jpeg, write jpeg
decode image = load image, read image
decode csv = parse csv, comma separated
decode raw = bytes numbers, frombuffer
parse example = tfrecord, tf example, features proto
read file = load file, file contents
write file = save file
matching files = glob, list files
resize bilinear = scale image, interpolate image, upsample
resize nearest neighbor = upsample
crop and resize = roi align, region interest
non max suppression = nms, overlapping boxes
rgb to hsv = color space
adjust contrast = image contrast
fft = fourier transform, frequency domain, dft
rfft = real fourier transform
ifft = inverse fourier
audio spectrogram = stft, short time fourier
mfcc = cepstral coefficients
hash table = dictionary, lookup table, key value, map keys
string to hash bucket = feature hashing, hash strings
regex replace = regular expression, substitute pattern
regex full match = regular expression match
string join = concatenate strings
string split = tokenize, split text
string to number = parse numbers, atoi, strtod
as string = to string, format numbers, str
unicode decode = code points, utf 8
substr = substring, slice string
edit distance = levenshtein
shuffle dataset = shuffle data, randomize order elements
batch dataset = minibatch, group elements
map dataset = transform elements, apply function elements
prefetch dataset = read ahead, background loading
interleave dataset = mix datasets, alternate
tensor slice dataset = dataset from arrays
tf record dataset = tfrecord file
iterator get next = next element
while = while loop, loop
for = for loop, counted loop
if = conditional, branch, cond
case = switch, several branches
py func = python function, call python, numpy function
partitioned call = call function, function call
print = log value, debug print
assert = check condition
check numerics = nan, detect nan, inf check
identity = pass through, copy
stop gradient = detach, no gradient, block gradient
cast = convert dtype, change type, astype
bitcast = reinterpret bits
save = checkpoint, write checkpoint, store variables
restore = load checkpoint, read checkpoint
merge v2 checkpoints = combine checkpoints
collective reduce = all reduce, allreduce, sum workers
collective gather = all gather, allgather
collective bcast send = broadcast workers
nccl all reduce = gpu all reduce
fifo queue = first in first out, buffer
priority queue = heap
random shuffle queue = shuffle buffer
barrier = wait, synchronize keys
stack = lifo, last in first out
tensor array = growing array, list of tensors, dynamic array
sparse tensor dense mat mul = sparse matrix product, spmm
sparse to dense = densify
ragged tensor to tensor = pad ragged, ragged to dense
quantize = int8, low precision, quantization
fake quant with min max args = quantization aware training
infeed enqueue = feed device
configure tpu embedding = tpu embedding, embedding tables tpu, large embedding
betainc = incomplete beta
igamma = incomplete gamma
polygamma = trigamma
zeta = riemann
linspace = evenly spaced
range = arange, sequence numbers
fill = constant tensor, full
zeros like = zeros same shape
eye = identity matrix
meshgrid = grid coordinates
space to batch = blocks to batch
space to depth = pixel unshuffle
depth to space = pixel shuffle, subpixel
extract image patches = im2col, sliding windows
invert permutation = inverse permutation
list diff = set difference, setdiff
dense to dense set operation = intersection, union
searchsorted = binary search, insertion point
lower bound = searchsorted, binary search
upper bound = searchsorted, binary search
bitwise and = bit mask
left shift = shift bits
population count = popcount, count set bits
timestamp = current time, clock
tensor summary = tensorboard
scalar summary = tensorboard scalar, log metric
write summary = tensorboard event
"""


def of(written: str) -> Sequence[str]:
    """Other expressions for a name without spaces: for `matmul` `matrix product`."""
    return _others().get(written.lower(), ())


def rows() -> Iterator[Sequence[str]]:
    """The expressions of each row."""
    for row in _SAME.strip().split("\n"):
        first, _, rest = row.partition(" = ")
        yield (first, *rest.split(", "))


@cache
def _others() -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for row in rows():
        for one in row:
            others = found.setdefault(one.replace(" ", ""), [])
            others += [other for other in row if other != one]
    return found
