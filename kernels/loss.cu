// loss: compares the view with the photograph, which `shrink` scales down.
//
// `loss`: (1 - lambda) L1 + lambda (1 - SSIM) against the photograph, and the image's gradient.
//
// One block per colour channel of a strip of LOSS_COLUMNS x LOSS_ROWS pixels. Nothing per pixel is stored between
// forward and backward. The gradient of a pixel depends on the SSIM of the 11x11 windows around it, and those depend on
// pixels up to 10 away, so the block also processes a rim. It marches down the strip STEP rows at a time; a longer
// strip has a relatively smaller rim. All filters are separable. Along columns, a thread is a column and holds the last
// rows in registers. Along rows, a thread is a run of RUN neighbours in one row of the step; the rows are in shared
// memory, and each belongs to one warp. Therefore a step needs two barriers: when columns hand `rows` to runs, and when
// runs hand it back.
// At masked pixels the photograph has `empty_color`, and the view's difference from it is scaled by `empty_weight`.
// Shapes: image and d_image [h, w, 3], target [h, w, 3] in 8 bits, mask [h, w].
//
// `shrink`: downscales a photograph by an integer divisor, by averaging squares of pixels. One thread per pixel of the
// result. Incomplete squares at the right and bottom are dropped. A pixel is masked and black if any of its source
// pixels is masked. Means are rounded, halves up: the CPU gives equal bytes.
// Shapes: rgb and normals [full h, full w, 3], mask and depths [full h, full w], small_rgb and small_normals
// [h, w, 3], small_mask and small_depths [h, w].

#include "layout.cuh"

constexpr int RADIUS = LOSS_TAPS / 2;
constexpr int RIM = 2 * RADIUS;  // pixels around the block's own on which their gradient depends
constexpr int COLUMNS = LOSS_BLOCK;
static_assert(LOSS_COLUMNS + 2 * RIM == COLUMNS, "a thread per column");
constexpr int RUN = 8;
constexpr int STEP = 8;  // rows
static_assert((LOSS_ROWS + RIM) % STEP == 0, "no part of a step is for nothing");
static_assert(STEP * (COLUMNS / RUN) == LOSS_BLOCK, "a thread per run");
static_assert(WARP % (COLUMNS / RUN) == 0, "rows do not part warps");
constexpr int HELD = RIM + STEP;  // rows of pixels in the windows of a step

// Padding between runs, so that 16-byte reads of eight lanes, which are served together, use different banks. Values
// that the outermost runs read outside the columns do not affect the block's own pixels.
constexpr int BESIDE = RUN;
static_assert(BESIDE >= RADIUS, "room for what the outermost runs read");
__host__ __device__ constexpr int padded(int column) {
    return column + BESIDE + (column + BESIDE) / RUN;
}
constexpr int PADDED_COLUMNS = padded(COLUMNS + BESIDE);

// Offset of the stored pixels. Without it, their squares would swamp the variances of bright flat regions.
constexpr float CENTRE = 0.5f;

// C1 = 0.01^2 and C2 = 0.03^2 (Wang et al. 2004).
constexpr float SSIM_C1 = 1e-4f;
constexpr float SSIM_C2 = 9e-4f;

struct LossShared {
    // In turn: sums along columns of x, y, x^2 + y^2 and xy; gradients of the windows' moments; these gradients summed
    // along rows.
    float4 rows[STEP][PADDED_COLUMNS];
    float warp_sums[3][LOSS_BLOCK / WARP];
};

// Work of a block.
struct Strip {
    int width, height;     // of the image, px
    uint32_t channel;
    int left;              // image column of the block's first column, in the rim
    int top_own, end_own;  // image rows whose pixels and windows are the block's own
};

// A thread's column of pixels, less CENTRE. Row 0 is the step's `top`.
struct Column {
    float x[HELD], y[HELD];
    float d_x[HELD];  // of SSIM, summed over the windows so far
};

struct Sums {
    float absolute, squared, similarity;
};

// True if the thread's column is one of the block's own.
__device__ inline bool owns_column(const Strip& strip) {
    const int column = static_cast<int>(threadIdx.x);
    return column >= RIM && column < COLUMNS - RIM && strip.left + column < strip.width;
}

// Returns the pixel, clamped to the image; clamped pixels are in no window that counts. 32 bits suffice for 1.4 Gpx.
__device__ inline uint32_t pixel_at(const Strip& strip, int px, int py) {
    return static_cast<uint32_t>(min(max(py, 0), strip.height - 1) * strip.width) +
           static_cast<uint32_t>(min(max(px, 0), strip.width - 1));
}

// Reads COUNT rows of the column from row FIRST on.
template <int FIRST, int COUNT>
__device__ inline void load(Column& held, const LossArgs& a, const Strip& strip, int top) {
    const float* __restrict__ image = a.image;
    const uint8_t* __restrict__ target = a.target;
    const uint8_t* __restrict__ mask = a.mask;
    const int px = strip.left + static_cast<int>(threadIdx.x);
    uint8_t y[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        const uint32_t value = pixel_at(strip, px, top + FIRST + i) * 3 + strip.channel;
        held.x[FIRST + i] = image[value];
        y[i] = target[value];
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) held.y[FIRST + i] = __fmul_rn(y[i], 1.0f / 255.0f);
    if (mask) {
        const float empty = a.empty_color[strip.channel], weight = a.empty_weight;
#pragma unroll
        for (int i = FIRST; i < FIRST + COUNT; ++i) {
            const bool kept = mask[pixel_at(strip, px, top + i)] != 0;
            // Without a weight, NaN is masked too.
            const float faded = weight > 0.0f ? empty + weight * (held.x[i] - empty) : empty;
            held.x[i] = kept ? held.x[i] : faded;
            held.y[i] = kept ? held.y[i] : empty;
        }
    }
    if (a.clamp) {
#pragma unroll
        for (int i = FIRST; i < FIRST + COUNT; ++i) {
            // Keeps NaN, as on the CPU; fminf and fmaxf would hide it.
            const float x = held.x[i];
            held.x[i] = x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x;
        }
    }
#pragma unroll
    for (int i = FIRST; i < FIRST + COUNT; ++i) {
        held.x[i] -= CENTRE;
        // Without contraction with the product, so that 255 becomes exactly 1 - CENTRE.
        held.y[i] = __fadd_rn(held.y[i], -CENTRE);
    }
}

// Adds the differences of the step's new pixels.
__device__ inline void add_differences(Sums& sums, const Column& held, const Strip& strip, int top) {
    if (!owns_column(strip)) return;
#pragma unroll
    for (int i = RIM; i < HELD; ++i) {
        const float difference = top + i < strip.end_own ? held.x[i] - held.y[i] : 0.0f;
        sums.absolute += fabsf(difference);
        sums.squared += difference * difference;
    }
}

// Sums along the column for the step's windows. Window j is centred on row j + RADIUS.
__device__ inline void sum_columns(LossShared& s, const LossArgs& a, const Column& held) {
    float4 sums[STEP] = {};
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
        const float x = held.x[i], y = held.y[i];
        const float squares = x * x + y * y, xy = x * y;
#pragma unroll
        for (int j = 0; j < STEP; ++j) {
            if (i - j < 0 || i - j >= static_cast<int>(LOSS_TAPS)) continue;
            const float tap = a.taps[i - j];
            sums[j].x += tap * x;
            sums[j].y += tap * y;
            sums[j].z += tap * squares;
            sums[j].w += tap * xy;
        }
    }
#pragma unroll
    for (int j = 0; j < STEP; ++j) s.rows[j][padded(threadIdx.x)] = sums[j];
}

// Sums along a row for RUN columns from `run` on, of the first MAPS components. The window is symmetric, so this is
// its own adjoint.
template <int MAPS>
__device__ inline void sum_run(float (&sums)[MAPS][RUN], const float4* run, const LossArgs& a) {
#pragma unroll
    for (int i = 0; i < RUN + RIM; ++i) {
        const float4 column = run[padded(i - RADIUS) - padded(0)];
        const float v[4] = {column.x, column.y, column.z, column.w};
#pragma unroll
        for (int k = 0; k < RUN; ++k) {
            if (i - k < 0 || i - k >= static_cast<int>(LOSS_TAPS)) continue;
#pragma unroll
            for (int q = 0; q < MAPS; ++q) sums[q][k] += a.taps[i - k] * v[q];
        }
    }
}

// Returns the SSIM of a window from its moments E[x], E[y], E[x^2 + y^2] and E[xy], x and y less CENTRE, and its
// gradient times `d_s` by E[x], by half of E[x^2], and by E[xy].
__device__ inline float similarity_bwd(const float4& m, float d_s, float4& d) {
    const float x = m.x + CENTRE, y = m.y + CENTRE;
    const float a1 = 2.0f * x * y + SSIM_C1;
    const float a2 = 2.0f * (m.w - m.x * m.y) + SSIM_C2;
    const float b1 = x * x + y * y + SSIM_C1;
    const float b2 = m.z - m.x * m.x - m.y * m.y + SSIM_C2;
    const float inverse = __fdividef(1.0f, b1 * b2);
    const float s = a1 * a2 * inverse;
    const float scale = 2.0f * inverse * d_s;
    d = {scale * (y * a2 - m.y * a1 + s * (m.x * b1 - x * b2)), -scale * s * b1, scale * a1, 0.0f};
    return s;
}

// Replaces the moments of a run's windows by their gradients. Returns the sum of the similarities of the block's own
// windows.
__device__ inline float similarities(float4* run, const LossArgs& a, const Strip& strip, int column,
                                     int py) {
    float m[4][RUN] = {};
    sum_run(m, run, a);
    __syncwarp();  // all lanes have read the row
    // Only windows inside the image count. Limits within the run:
    const int margin = static_cast<int>(a.margin), px = strip.left + column;
    const bool row_counts = py >= margin && py < strip.height - margin;
    const int from = margin - px, to = row_counts ? strip.width - margin - px : 0;
    const bool own_row = py >= strip.top_own && py < strip.end_own;
    const int own_from = max(from, RIM - column);
    const int own_to = own_row ? min(to, COLUMNS - RIM - column) : 0;
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < RUN; ++k) {
        const float d_s = k >= from && k < to ? a.d_values[VALUE_SSIM] : 0.0f;
        const float similarity = similarity_bwd({m[0][k], m[1][k], m[2][k], m[3][k]}, d_s, run[k]);
        if (k >= own_from && k < own_to) sum += similarity;
    }
    __syncwarp();  // all gradients of the row are written
    return sum;
}

// Filters the gradients of the windows along the row, in place.
__device__ inline void spread_run(float4* run, const LossArgs& a) {
    float d[3][RUN] = {};
    sum_run(d, run, a);
    __syncwarp();  // all lanes have read the row
#pragma unroll
    for (int k = 0; k < RUN; ++k) run[k] = {d[0][k], d[1][k], d[2][k], 0.0f};
}

// Filters the gradients of the step's windows along the column.
__device__ inline void spread_columns(Column& held, const LossShared& s, const LossArgs& a) {
#pragma unroll
    for (int j = 0; j < STEP; ++j) {
        const float4 d = s.rows[j][padded(threadIdx.x)];
#pragma unroll
        for (int i = j; i < j + static_cast<int>(LOSS_TAPS); ++i) {
            const float d_x = d.x + held.x[i] * d.y + held.y[i] * d.z;
            // No earlier window contains the last row.
            held.d_x[i] = (i - j == RIM ? 0.0f : held.d_x[i]) + a.taps[i - j] * d_x;
        }
    }
}

// Writes the gradient of the rows that are in no further window.
__device__ inline void store(const Column& held, const LossArgs& a, const Strip& strip, int top) {
    const uint8_t* __restrict__ mask = a.mask;
    const int px = strip.left + static_cast<int>(threadIdx.x);
    if (!owns_column(strip)) return;
    float d_x[STEP];
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
        // Without branches, which would diverge.
        const float sign = static_cast<float>(held.x[i] > held.y[i]) -
                           static_cast<float>(held.x[i] < held.y[i]);
        d_x[i] = held.d_x[i] + sign * a.d_values[VALUE_L1];
    }
    // The image was masked, so its gradient is.
    if (mask) {
        const float weight = a.empty_weight;
#pragma unroll
        for (int i = 0; i < STEP; ++i) {
            const bool kept = mask[pixel_at(strip, px, top + i)] != 0;
            d_x[i] = kept ? d_x[i] : weight > 0.0f ? weight * d_x[i] : 0.0f;
        }
    }
    float* __restrict__ d_image = a.d_image;
    const int values_wide = strip.width * 3;
    const int64_t first_value = static_cast<int64_t>(top) * values_wide + px * 3 + strip.channel;
    const int own_from = strip.top_own - top, own_to = strip.end_own - top;
#pragma unroll
    for (int i = 0; i < STEP; ++i) {
        if (i >= own_from && i < own_to) d_image[first_value + i * values_wide] = d_x[i];
    }
}

// Moves the rows up by a step.
__device__ inline void advance(Column& held) {
#pragma unroll
    for (int i = 0; i < RIM; ++i) {
        held.x[i] = held.x[i + STEP];
        held.y[i] = held.y[i + STEP];
        held.d_x[i] = held.d_x[i + STEP];
    }
}

// Adds the block's sums to those of the image.
__device__ inline void add_sums(LossShared& s, const LossArgs& a, const Sums& sums) {
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const float totals[3] = {warp_sum(sums.absolute), warp_sum(sums.squared),
                             warp_sum(sums.similarity)};
    if (lane == 0) {
        for (int q = 0; q < 3; ++q) s.warp_sums[q][warp] = totals[q];
    }
    __syncthreads();  // the warps' sums are there
    if (threadIdx.x < 3) {
        double total = 0.0;
        for (uint32_t w = 0; w < LOSS_BLOCK / WARP; ++w) total += s.warp_sums[threadIdx.x][w];
        constexpr uint32_t PLACES[3] = {VALUE_L1, SUM_SQUARED, VALUE_SSIM};
        atomicAdd(a.sums + PLACES[threadIdx.x], total);
    }
}

// Strips are numbered by channel, then by column, then by row.
__device__ inline Strip strip_of_block(const LossArgs& a) {
    const uint32_t strips_wide = (a.size[0] + LOSS_COLUMNS - 1) / LOSS_COLUMNS;
    const uint32_t strip = blockIdx.x / 3;
    const int width = static_cast<int>(a.size[0]), height = static_cast<int>(a.size[1]);
    const int top_own = static_cast<int>(strip / strips_wide * LOSS_ROWS);
    return {width,
            height,
            blockIdx.x % 3,
            static_cast<int>(strip % strips_wide * LOSS_COLUMNS) - RIM,
            top_own,
            min(top_own + static_cast<int>(LOSS_ROWS), height)};
}

extern "C" __global__ void __launch_bounds__(LOSS_BLOCK, 4) loss(const __grid_constant__ LossArgs a) {
    __shared__ LossShared s;
    const Strip strip = strip_of_block(a);
    const int run_row = static_cast<int>(threadIdx.x) / (COLUMNS / RUN);
    const int run_column = static_cast<int>(threadIdx.x) % (COLUMNS / RUN) * RUN;
    float4* const run = &s.rows[run_row][padded(run_column)];

    Column held = {};
    Sums sums = {};
    load<0, RIM>(held, a, strip, strip.top_own - RIM);
    for (int top = strip.top_own - RIM; top < strip.end_own; top += STEP) {
        load<RIM, STEP>(held, a, strip, top);
        add_differences(sums, held, strip, top);
        sum_columns(s, a, held);
        __syncthreads();  // the sums along columns are there
        sums.similarity += similarities(run, a, strip, run_column, top + RADIUS + run_row);
        if (a.d_image) spread_run(run, a);
        __syncthreads();  // the gradients are spread along rows, and the runs are done with `rows`
        if (a.d_image) {
            spread_columns(held, s, a);
            store(held, a, strip, top);
        }
        advance(held);
    }
    add_sums(s, a, sums);
}

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
