// shrink: downscales a photograph by an integer divisor, by averaging squares of pixels. One thread per pixel of the
// result. Incomplete squares at the right and bottom are dropped. A pixel is masked and black if any of its source
// pixels is masked. Means are rounded, halves up: the CPU gives equal bytes.
// Shapes: rgb and normals [full h, full w, 3], mask and depths [full h, full w], small_rgb and small_normals
// [h, w, 3], small_mask and small_depths [h, w].

#include "layout.cuh"

// Makes components of normals positive, so that their means are rounded like others.
constexpr int NORMAL_BIAS = 128;

__device__ inline uint32_t mean_of(uint32_t sum, uint32_t count) {
    return (sum + count / 2) / count;
}

extern "C" __global__ void __launch_bounds__(SHRINK_BLOCK)
    shrink(const __grid_constant__ ShrinkArgs a) {
    const uint8_t* __restrict__ rgb = a.rgb;
    const uint8_t* __restrict__ mask = a.mask;
    const uint16_t* __restrict__ depths = a.depths;
    const int8_t* __restrict__ normals = a.normals;
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= a.size[0] * a.size[1]) return;
    const uint32_t x = pixel % a.size[0], y = pixel / a.size[0];

    uint32_t red = 0, green = 0, blue = 0, depth = 0;
    uint32_t normal[3] = {0, 0, 0};
    bool counts = true;
    for (uint32_t row = 0; row < a.divisor; ++row) {
        const uint64_t first = uint64_t{y * a.divisor + row} * a.full_width + x * a.divisor;
        for (uint32_t column = 0; column < a.divisor; ++column) {
            const uint64_t at = first + column;
            red += rgb[at * 3];
            green += rgb[at * 3 + 1];
            blue += rgb[at * 3 + 2];
            if (mask != nullptr) counts = counts && mask[at] != 0;
            if (depths != nullptr) depth += depths[at];
            if (normals == nullptr) continue;
            for (uint32_t axis = 0; axis < 3; ++axis) normal[axis] += NORMAL_BIAS + normals[at * 3 + axis];
        }
    }
    const uint32_t count = a.divisor * a.divisor;
    uint8_t* const small = a.small_rgb + uint64_t{pixel} * 3;
    small[0] = static_cast<uint8_t>(counts ? mean_of(red, count) : 0);
    small[1] = static_cast<uint8_t>(counts ? mean_of(green, count) : 0);
    small[2] = static_cast<uint8_t>(counts ? mean_of(blue, count) : 0);
    if (mask != nullptr) a.small_mask[pixel] = counts ? 255 : 0;
    if (depths != nullptr) a.small_depths[pixel] = static_cast<uint16_t>(mean_of(depth, count));
    if (normals == nullptr) return;
    for (uint32_t axis = 0; axis < 3; ++axis) {
        const int mean = static_cast<int>(mean_of(normal[axis], count));
        a.small_normals[uint64_t{pixel} * 3 + axis] = static_cast<int8_t>(mean - NORMAL_BIAS);
    }
}
