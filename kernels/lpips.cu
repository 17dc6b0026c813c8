// lpips: perceptual distance of a render and its photograph (Zhang et al. 2018), in strips.
//
// The features of both images are stored one after the other, each channel as a plane: [2, channels, rows, width].
// lpips_input: one thread per pixel of the strip. lpips_pool: one per output value. lpips_compare: one per pixel of the
// strip's own; a block adds one number to the sum. lpips_convolution is a matrix product of weights [outputs, depth]
// and patches [depth, pixels], which are gathered on the fly and never stored. A block computes LPIPS_CHANNELS channels
// of LPIPS_BLOCK pixels, a thread 8 of each. `depth` is processed in pieces of LPIPS_DEPTH with double buffering in
// shared memory: while one piece is used, the next is loaded through registers into the other buffer. The barrier of an
// iteration ensures that the next piece is complete and that the buffer of the last one is free.

#include "layout.cuh"

constexpr uint32_t SHARE = 8;  // pixels and channels of a thread
constexpr uint32_t HALF = SHARE / 2;
constexpr uint32_t PIXEL_GROUPS = LPIPS_BLOCK / SHARE;
constexpr uint32_t CHANNEL_GROUPS = LPIPS_CHANNELS / SHARE;
static_assert(PIXEL_GROUPS * CHANNEL_GROUPS == LPIPS_BLOCK, "a thread per share");
static_assert(LPIPS_DEPTH * LPIPS_CHANNELS == LPIPS_BLOCK * 4, "four weights per thread");

struct alignas(16) Piece {
    float pixels[LPIPS_DEPTH][LPIPS_BLOCK];
    float weights[LPIPS_DEPTH][LPIPS_CHANNELS];
};

// A thread's share of a piece.
struct Brought {
    float pixels[LPIPS_DEPTH];
    float4 weights;
};

// The pixel that a thread loads, and the position in its patch.
struct Walk {
    const float* plane;  // plane of the channel
    int left, top;       // of the window in the whole input image
    uint32_t channel, row, column;
    bool inside;         // true if the pixel exists
};

// Unlike fmaxf, keeps NaN.
__device__ inline float not_below_zero(float value) { return value < 0.0f ? 0.0f : value; }

__device__ inline void bring(Brought& brought, Walk& walk, const LpipsLayerArgs& a, uint32_t piece,
                             uint32_t first_channel) {
    const uint64_t plane = uint64_t{a.input_width} * a.input_rows;
#pragma unroll
    for (uint32_t k = 0; k < LPIPS_DEPTH; ++k) {
        const int y = walk.top + static_cast<int>(walk.row);
        const int x = walk.left + static_cast<int>(walk.column);
        const bool there = walk.inside && walk.channel < a.inputs && y >= 0 &&
                           y < static_cast<int>(a.input_height) && x >= 0 &&
                           x < static_cast<int>(a.input_width);
        const uint32_t place =
            (static_cast<uint32_t>(y) - a.input_first) * a.input_width + static_cast<uint32_t>(x);
        brought.pixels[k] = there ? walk.plane[place] : 0.0f;
        if (++walk.column == a.side) {
            walk.column = 0;
            if (++walk.row == a.side) {
                walk.row = 0;
                ++walk.channel;
                walk.plane += plane;
            }
        }
    }
    const uint32_t k = threadIdx.x / (LPIPS_CHANNELS / 4);
    const uint32_t channel = first_channel + threadIdx.x % (LPIPS_CHANNELS / 4) * 4;
    const uint64_t row = uint64_t{piece} * LPIPS_DEPTH + k;
    brought.weights = *reinterpret_cast<const float4*>(a.weights + row * a.outputs + channel);
}

__device__ inline void put(Piece& piece, const Brought& brought) {
#pragma unroll
    for (uint32_t k = 0; k < LPIPS_DEPTH; ++k) piece.pixels[k][threadIdx.x] = brought.pixels[k];
    const uint32_t k = threadIdx.x / (LPIPS_CHANNELS / 4);
    const uint32_t channel = threadIdx.x % (LPIPS_CHANNELS / 4) * 4;
    *reinterpret_cast<float4*>(&piece.weights[k][channel]) = brought.weights;
}

// Loads the thread's share of a row: four values, and four more half a row further.
__device__ inline void take(float (&values)[SHARE], const float* row, uint32_t group,
                            uint32_t groups) {
    const float4 low = *reinterpret_cast<const float4*>(row + group * HALF);
    const float4 high = *reinterpret_cast<const float4*>(row + (groups + group) * HALF);
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

// Returns the index in the row of value i of a share.
__device__ inline uint32_t place_in_row(uint32_t i, uint32_t group, uint32_t groups) {
    return (i / HALF * groups + group) * HALF + i % HALF;
}

extern "C" __global__ void __launch_bounds__(LPIPS_BLOCK)
    lpips_convolution(const __grid_constant__ LpipsLayerArgs a) {
    __shared__ Piece pieces[2];
    const uint32_t plane_out = a.output_width * a.output_rows;
    const uint32_t channel_tiles = a.outputs / LPIPS_CHANNELS;
    const uint32_t pixel_tiles = (plane_out + LPIPS_BLOCK - 1) / LPIPS_BLOCK;
    // Blocks of one tile of pixels are consecutive, since they read the same pixels.
    const uint32_t first_channel = blockIdx.x % channel_tiles * LPIPS_CHANNELS;
    const uint32_t first_pixel = blockIdx.x / channel_tiles % pixel_tiles * LPIPS_BLOCK;
    const uint32_t image = blockIdx.x / channel_tiles / pixel_tiles;

    const uint32_t pixel = first_pixel + threadIdx.x;
    const uint32_t out_row = a.output_first + pixel / a.output_width;
    const uint64_t values_in = uint64_t{a.input_width} * a.input_rows * a.inputs;
    Walk walk = {a.input + image * values_in,
                 static_cast<int>(pixel % a.output_width * a.stride) - static_cast<int>(a.padding),
                 static_cast<int>(out_row * a.stride) - static_cast<int>(a.padding),
                 0,
                 0,
                 0,
                 pixel < plane_out};

    const uint32_t pixel_group = threadIdx.x % PIXEL_GROUPS;
    const uint32_t channel_group = threadIdx.x / PIXEL_GROUPS;
    float sums[SHARE][SHARE] = {};  // [channel][pixel]
    Brought brought;
    bring(brought, walk, a, 0, first_channel);
    put(pieces[0], brought);
    __syncthreads();  // the first piece is there
    for (uint32_t piece = 0; piece < a.pieces; ++piece) {
        const bool more = piece + 1 < a.pieces;
        if (more) bring(brought, walk, a, piece + 1, first_channel);
        const Piece& now = pieces[piece % 2];
#pragma unroll
        for (uint32_t k = 0; k < LPIPS_DEPTH; ++k) {
            float seen[SHARE], weights[SHARE];
            take(seen, now.pixels[k], pixel_group, PIXEL_GROUPS);
            take(weights, now.weights[k], channel_group, CHANNEL_GROUPS);
#pragma unroll
            for (uint32_t c = 0; c < SHARE; ++c) {
#pragma unroll
                for (uint32_t p = 0; p < SHARE; ++p) sums[c][p] += weights[c] * seen[p];
            }
        }
        if (more) put(pieces[(piece + 1) % 2], brought);
        __syncthreads();  // the next piece is complete, and this one is free
    }

    const float* __restrict__ bias = a.bias;
    float* __restrict__ output = a.output;
#pragma unroll
    for (uint32_t c = 0; c < SHARE; ++c) {
        const uint32_t channel =
            first_channel + place_in_row(c, channel_group, CHANNEL_GROUPS);
        const uint64_t plane = (uint64_t{image} * a.outputs + channel) * plane_out;
#pragma unroll
        for (uint32_t p = 0; p < SHARE; ++p) {
            const uint32_t at = first_pixel + place_in_row(p, pixel_group, PIXEL_GROUPS);
            if (at < plane_out) output[plane + at] = not_below_zero(sums[c][p] + bias[channel]);
        }
    }
}

extern "C" __global__ void __launch_bounds__(LPIPS_PIXELS)
    lpips_pool(const __grid_constant__ LpipsLayerArgs a) {
    const uint32_t plane_out = a.output_width * a.output_rows;
    const uint32_t blocks = (plane_out + LPIPS_PIXELS - 1) / LPIPS_PIXELS;
    const uint64_t plane = blockIdx.x / blocks;  // of both images' channels
    const uint32_t pixel = blockIdx.x % blocks * LPIPS_PIXELS + threadIdx.x;
    if (pixel >= plane_out) return;
    const uint32_t row = (a.output_first + pixel / a.output_width) * a.stride - a.input_first;
    const uint32_t column = pixel % a.output_width * a.stride;
    const float* __restrict__ input =
        a.input + plane * (uint64_t{a.input_width} * a.input_rows) + row * a.input_width + column;
    float most = input[0];
    for (uint32_t y = 0; y < a.side; ++y) {
        for (uint32_t x = 0; x < a.side; ++x) {
            const float value = input[y * a.input_width + x];
            // NaN counts as the largest value.
            if (most == most && !(value <= most)) most = value;
        }
    }
    a.output[plane * plane_out + pixel] = most;
}

// Normalises a value of 0..1 for the network.
__device__ inline float fed(float value, const LpipsInputArgs& a) {
    if (!a.eight_bits) return 2.0f * value - 1.0f;
    return floorf(value * 255.0f + 0.5f) * (1.0f / 255.0f);
}

extern "C" __global__ void __launch_bounds__(LPIPS_PIXELS)
    lpips_input(const __grid_constant__ LpipsInputArgs a) {
    const float* __restrict__ image = a.image;
    const uint8_t* __restrict__ target = a.target;
    const uint8_t* __restrict__ mask = a.mask;
    float* __restrict__ input = a.input;
    const uint32_t plane = a.width * a.rows;
    const uint32_t i = blockIdx.x * LPIPS_PIXELS + threadIdx.x;
    if (i >= plane) return;
    const uint64_t pixel = uint64_t{a.first_row} * a.width + i;
    const bool kept = !mask || mask[pixel] != 0;
    const float shift[3] = {LPIPS_SHIFT_R, LPIPS_SHIFT_G, LPIPS_SHIFT_B};
    const float scale[3] = {LPIPS_SCALE_R, LPIPS_SCALE_G, LPIPS_SCALE_B};
#pragma unroll
    for (uint32_t c = 0; c < 3; ++c) {
        const float drawn = image[pixel * 3 + c];
        // Keeps NaN.
        const float held = drawn < 0.0f ? 0.0f : drawn > 1.0f ? 1.0f : drawn;
        const float x = kept ? held : 0.0f;
        const float y = kept ? target[pixel * 3 + c] * (1.0f / 255.0f) : 0.0f;
        input[uint64_t{c} * plane + i] = (fed(x, a) - shift[c]) / scale[c];
        input[uint64_t{c + 3} * plane + i] = (fed(y, a) - shift[c]) / scale[c];
    }
}

extern "C" __global__ void __launch_bounds__(LPIPS_PIXELS)
    lpips_compare(const __grid_constant__ LpipsCompareArgs a) {
    __shared__ double warp_sums[LPIPS_PIXELS / WARP];
    const float* __restrict__ weights = a.weights;
    const uint32_t i = blockIdx.x * LPIPS_PIXELS + threadIdx.x;
    float sum = 0.0f;
    if (i < a.count) {
        const uint64_t plane = a.plane;
        const float* __restrict__ x = a.features + a.first + i;
        const float* __restrict__ y = x + a.channels * plane;
        float xx = 0.0f, yy = 0.0f;
        for (uint32_t c = 0; c < a.channels; ++c) {
            xx += x[c * plane] * x[c * plane];
            yy += y[c * plane] * y[c * plane];
        }
        const float length_x = sqrtf(xx) + LPIPS_EPSILON, length_y = sqrtf(yy) + LPIPS_EPSILON;
        for (uint32_t c = 0; c < a.channels; ++c) {
            const float difference = x[c * plane] / length_x - y[c * plane] / length_y;
            sum += weights[c] * (difference * difference);
        }
    }
    const float of_warp = warp_sum(sum);
    if (threadIdx.x % WARP == 0) warp_sums[threadIdx.x / WARP] = of_warp;
    __syncthreads();  // the warps' sums are there
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (uint32_t w = 0; w < LPIPS_PIXELS / WARP; ++w) total += warp_sums[w];
        atomicAdd(a.sum, total);
    }
}
