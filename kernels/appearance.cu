// appearance: per-view colour compensation, its gradients and steps; and the sums to fit a render's colours to a
// photograph.
//
// Results do not depend on the order in which blocks run: each block stores its share of a sum, and the shares are
// added in order.
// Shapes: image, compensated and d_image [h, w, 3]; table [12] or [luma, y, x, 12].

#include "abi.cuh"
#include "layout.cuh"

// Twin of math/appearance.rs: affine maps of colours, and bilateral grids of them (Wang et al. 2024). Same names; see
// Rust for the equations.

constexpr uint32_t CELLS_X = GRID_X - 1, CELLS_Y = GRID_Y - 1, CELLS_LUMA = GRID_LUMA - 1;
constexpr uint32_t GRID_WIDTH = GRID_X * GRID_Y * GRID_LUMA * AFFINE_WIDTH;

// A 3x4 matrix in rows, as in tables.
struct Affine {
    float4 row[3];
};

__device__ inline float along(float4 row, float3 rgb) {
    return row.x * rgb.x + row.y * rgb.y + row.z * rgb.z + row.w;
}

__device__ inline float3 affine(const Affine& m, float3 rgb) {
    return {along(m.row[0], rgb), along(m.row[1], rgb), along(m.row[2], rgb)};
}

__device__ inline float3 affine_bwd(const Affine& m, float3 d_out) {
    return {m.row[0].x * d_out.x + m.row[1].x * d_out.y + m.row[2].x * d_out.z,
            m.row[0].y * d_out.x + m.row[1].y * d_out.y + m.row[2].y * d_out.z,
            m.row[0].z * d_out.x + m.row[1].z * d_out.y + m.row[2].z * d_out.z};
}

struct Between {
    uint32_t corner;
    float fraction;
};

// An image is at most 65,535 px wide, so products fit into 32 bits, and the numbers into a float's 24 bits.
__device__ inline Between place_of_pixel(uint32_t pixel, uint32_t side, uint32_t corners) {
    const uint32_t scaled = (2 * pixel + 1) * (corners - 1), whole = 2 * side;
    return {scaled / whole, static_cast<float>(scaled % whole) / static_cast<float>(whole)};
}

// Returns the first pixel that is not before a corner.
__device__ inline uint32_t first_pixel(uint32_t corner, uint32_t side, uint32_t corners) {
    return (2 * side * corner + corners - 2) / (corners - 1) / 2;
}

__device__ inline Between place_of_luma(float3 rgb, bool& is_free) {
    const float luma = 0.299f * rgb.x + 0.587f * rgb.y + 0.114f * rgb.z;
    const float scaled = fminf(fmaxf(luma, 0.0f), 1.0f) * static_cast<float>(CELLS_LUMA);
    const uint32_t corner = min(static_cast<uint32_t>(scaled), CELLS_LUMA - 1);
    is_free = luma > 0.0f && luma < 1.0f;
    return {corner, scaled - static_cast<float>(corner)};
}

struct Place {
    Between x, y, luma;
    bool is_free;
};

__device__ inline Place place_of(uint32_t x, uint32_t y, const uint32_t (&size)[2], float3 rgb) {
    Place p;
    p.x = place_of_pixel(x, size[0], GRID_X);
    p.y = place_of_pixel(y, size[1], GRID_Y);
    p.luma = place_of_luma(rgb, p.is_free);
    return p;
}

__device__ inline float4 scaled_sum(float4 sum, float weight, float4 value) {
    return {sum.x + weight * value.x, sum.y + weight * value.y, sum.z + weight * value.z,
            sum.w + weight * value.w};
}

// Returns the map at the luma corners before (side 0) or after (side 1).
__device__ inline Affine plane(const float* __restrict__ grid, const Place& p, uint32_t side) {
    Affine m = {};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t dx = i % 2, dy = i / 2;
        const float weight = (dx == 1 ? p.x.fraction : 1.0f - p.x.fraction) *
                             (dy == 1 ? p.y.fraction : 1.0f - p.y.fraction);
        const uint32_t corner =
            ((p.luma.corner + side) * GRID_Y + p.y.corner + dy) * GRID_X + p.x.corner + dx;
        const float4* const map = reinterpret_cast<const float4*>(grid + corner * AFFINE_WIDTH);
#pragma unroll
        for (uint32_t row = 0; row < 3; ++row) m.row[row] = scaled_sum(m.row[row], weight, map[row]);
    }
    return m;
}

// Returns the map of a pixel and its slope along luma.
__device__ inline Affine slice(const float* __restrict__ grid, const Place& p, Affine& slope) {
    Affine map = plane(grid, p, 0);
    const Affine high = plane(grid, p, 1);
    const float cells = static_cast<float>(CELLS_LUMA);
#pragma unroll
    for (uint32_t row = 0; row < 3; ++row) {
        const float4 difference = scaled_sum(high.row[row], -1.0f, map.row[row]);
        map.row[row] = scaled_sum(map.row[row], p.luma.fraction, difference);
        slope.row[row] = scaled_sum({0.0f, 0.0f, 0.0f, 0.0f}, cells, difference);
    }
    return map;
}

__device__ inline float3 slice_bwd(const float* __restrict__ grid, const Place& p, float3 rgb,
                                   float3 d_out) {
    Affine slope;
    const Affine map = slice(grid, p, slope);
    float3 d_rgb = affine_bwd(map, d_out);
    if (p.is_free) {
        const float3 moved = affine(slope, rgb);
        const float d_luma = moved.x * d_out.x + moved.y * d_out.y + moved.z * d_out.z;
        d_rgb.x += 0.299f * d_luma;
        d_rgb.y += 0.587f * d_luma;
        d_rgb.z += 0.114f * d_luma;
    }
    return d_rgb;
}

// Returns the contribution of neighbours along one axis to the gradient of the total variation.
__device__ inline float variation_along(const float* __restrict__ grid, uint32_t k, uint32_t stride,
                                        uint32_t corners) {
    const uint32_t at = k / stride % corners;
    const float value = grid[k];
    float differences = 0.0f;
    if (at > 0) differences += value - grid[k - stride];
    if (at + 1 < corners) differences += value - grid[k + stride];
    const uint32_t pairs = GRID_WIDTH / corners * (corners - 1);
    return 2.0f / static_cast<float>(pairs) * differences;
}

__device__ inline float total_variation_bwd(const float* __restrict__ grid, uint32_t k) {
    return variation_along(grid, k, AFFINE_WIDTH, GRID_X) +
           variation_along(grid, k, GRID_X * AFFINE_WIDTH, GRID_Y) +
           variation_along(grid, k, GRID_Y * GRID_X * AFFINE_WIDTH, GRID_LUMA);
}

__device__ inline uint32_t pixels_of(const uint32_t (&size)[2]) { return size[0] * size[1]; }

__device__ inline float3 color_at(const float* __restrict__ image, uint32_t pixel) {
    const float* const c = image + uint64_t{pixel} * 3;
    return {c[0], c[1], c[2]};
}

__device__ inline void put_color(float* __restrict__ image, uint32_t pixel, float3 color) {
    float* const c = image + uint64_t{pixel} * 3;
    c[0] = color.x;
    c[1] = color.y;
    c[2] = color.z;
}

// Keeps NaN, as on the CPU.
__device__ inline float held(float x) { return x < 0.0f ? 0.0f : x > 1.0f ? 1.0f : x; }

__device__ inline float3 held(float3 rgb) { return {held(rgb.x), held(rgb.y), held(rgb.z)}; }

__device__ inline Affine whole_map(const float* __restrict__ table) {
    const float4* const rows = reinterpret_cast<const float4*>(table);
    return {{rows[0], rows[1], rows[2]}};
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    compensate_exposure(const __grid_constant__ CompensateArgs a) {
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels_of(a.size)) return;
    const float3 drawn = color_at(a.image, pixel);
    put_color(a.compensated, pixel, affine(whole_map(a.table), a.clamp ? held(drawn) : drawn));
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    compensate_grid(const __grid_constant__ CompensateArgs a) {
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels_of(a.size)) return;
    const float3 rgb = color_at(a.image, pixel);
    const Place p = place_of(pixel % a.size[0], pixel / a.size[0], a.size, rgb);
    Affine slope;
    put_color(a.compensated, pixel, affine(slice(a.table, p, slope), rgb));
}

// Sums over the whole block; thread k < COUNT returns the sum of value k.
template <uint32_t COUNT, class T>
__device__ inline T block_sum(T (&shared)[COUNT][APPEARANCE_BLOCK / WARP], const T (&values)[COUNT]) {
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
#pragma unroll
    for (uint32_t k = 0; k < COUNT; ++k) {
        T sum = values[k];
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(FULL_WARP, sum, distance);
        }
        if (lane == 0) shared[k][warp] = sum;
    }
    __syncthreads();  // the warps' sums are there
    T total = 0;
    if (threadIdx.x < COUNT) {
        for (uint32_t w = 0; w < APPEARANCE_BLOCK / WARP; ++w) total += shared[threadIdx.x][w];
    }
    return total;
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    exposure_bwd(const __grid_constant__ ColorBwdArgs a) {
    __shared__ float warp_sums[AFFINE_WIDTH][APPEARANCE_BLOCK / WARP];
    const Affine map = whole_map(a.table);
    float d_map[AFFINE_WIDTH] = {};
    const uint32_t pixels = pixels_of(a.size);
    for (uint32_t pixel = blockIdx.x * APPEARANCE_BLOCK + threadIdx.x; pixel < pixels;
         pixel += COLOR_SHARES * APPEARANCE_BLOCK) {
        const float3 rgb = color_at(a.image, pixel), d_out = color_at(a.d_image, pixel);
        const float d[3] = {d_out.x, d_out.y, d_out.z};
#pragma unroll
        for (uint32_t row = 0; row < 3; ++row) {
            d_map[4 * row] += d[row] * rgb.x;
            d_map[4 * row + 1] += d[row] * rgb.y;
            d_map[4 * row + 2] += d[row] * rgb.z;
            d_map[4 * row + 3] += d[row];
        }
        put_color(a.d_image, pixel, affine_bwd(map, d_out));
    }
    const float total = block_sum(warp_sums, d_map);
    if (threadIdx.x < AFFINE_WIDTH) a.sums[blockIdx.x * AFFINE_WIDTH + threadIdx.x] = total;
}

// One warp per value.
extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    gather_exposure(const __grid_constant__ GatherArgs a) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t k = thread / WARP, lane = thread % WARP;
    if (k >= AFFINE_WIDTH) return;
    float sum = 0.0f;
    for (uint32_t share = lane; share < COLOR_SHARES; share += WARP) {
        sum += a.sums[share * AFFINE_WIDTH + k];
    }
    sum = warp_sum(sum);
    if (lane == 0) a.gradient[k] = sum;
}

// Number of values at the corners of one column of a grid.
constexpr uint32_t COLUMN_WIDTH = GRID_LUMA * AFFINE_WIDTH;
constexpr uint32_t GROUPS = GRID_BWD_BLOCK / COLUMN_WIDTH;
static_assert(COLUMN_WIDTH % WARP == 0, "all lanes of a warp look at one pixel");
static_assert(GROUPS == 4, "as many as columns at a cell, for a thread adds up one value of each");

// A pixel during the gradient of the grid.
struct Staged {
    float color[4];  // and 1
    float d_out[3];
    float x, y;  // fractions
    float luma;  // in cells
};

struct GridShared {
    Staged pixels[GRID_BWD_BLOCK];
    float sums[GROUPS][4][COLUMN_WIDTH];
};

// Each block has a share of the rows of pixels between four columns of corners. Its threads load one pixel each. Then
// each thread visits a quarter of these pixels for one value of a column's corners and sums the contributions to it in
// all four columns.
extern "C" __global__ void __launch_bounds__(GRID_BWD_BLOCK)
    grid_bwd(const __grid_constant__ ColorBwdArgs a) {
    __shared__ GridShared s;
    const uint32_t cell = blockIdx.x / GRID_SHARES, share = blockIdx.x % GRID_SHARES;
    const uint32_t cell_x = cell % CELLS_X, cell_y = cell / CELLS_X;
    const uint32_t left = first_pixel(cell_x, a.size[0], GRID_X);
    const uint32_t width = first_pixel(cell_x + 1, a.size[0], GRID_X) - left;
    const uint32_t top_cell = first_pixel(cell_y, a.size[1], GRID_Y);
    const uint32_t rows = first_pixel(cell_y + 1, a.size[1], GRID_Y) - top_cell;
    const uint32_t top = top_cell + rows * share / GRID_SHARES;
    const uint32_t end = top_cell + rows * (share + 1) / GRID_SHARES;
    const uint32_t pixels = width * (end - top);

    const uint32_t group = threadIdx.x / COLUMN_WIDTH, value = threadIdx.x % COLUMN_WIDTH;
    const float luma = static_cast<float>(value / AFFINE_WIDTH);
    const uint32_t row = value % AFFINE_WIDTH / 4, column = value % 4;
    float sums[4] = {};
    for (uint32_t first = 0; first < pixels; first += GRID_BWD_BLOCK) {
        const uint32_t i = first + threadIdx.x;
        if (i < pixels) {
            const uint32_t px = left + i % width, py = top + i / width;
            const uint32_t pixel = py * a.size[0] + px;
            const float3 rgb = color_at(a.image, pixel), d_out = color_at(a.d_image, pixel);
            const Place p = place_of(px, py, a.size, rgb);
            s.pixels[threadIdx.x] = {{rgb.x, rgb.y, rgb.z, 1.0f},
                                     {d_out.x, d_out.y, d_out.z},
                                     p.x.fraction,
                                     p.y.fraction,
                                     static_cast<float>(p.luma.corner) + p.luma.fraction};
            put_color(a.d_image, pixel, slice_bwd(a.table, p, rgb, d_out));
        }
        __syncthreads();  // the pixels are staged
        const uint32_t count = min(pixels - first, GRID_BWD_BLOCK);
        for (uint32_t j = group; j < count; j += GROUPS) {
            const Staged& p = s.pixels[j];
            const float weight = fmaxf(1.0f - fabsf(p.luma - luma), 0.0f);
            const float d = weight * p.d_out[row] * p.color[column];
            const float right = d * p.x, left_side = d - right;
            const float right_below = right * p.y, left_below = left_side * p.y;
            sums[0] += left_side - left_below;
            sums[1] += right - right_below;
            sums[2] += left_below;
            sums[3] += right_below;
        }
        __syncthreads();  // all threads have read the pixels
    }
#pragma unroll
    for (uint32_t corner = 0; corner < 4; ++corner) s.sums[group][corner][value] = sums[corner];
    __syncthreads();  // the groups' sums are there
    float total = 0.0f;
#pragma unroll
    for (uint32_t g = 0; g < GROUPS; ++g) total += s.sums[g][group][value];
    a.sums[blockIdx.x * GRID_BWD_BLOCK + threadIdx.x] = total;
}

// One thread per value of the grid: sums the shares of the cells around its corner, and adds the gradient of the total
// variation.
extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    gather_grid(const __grid_constant__ GatherArgs a) {
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= GRID_WIDTH) return;
    const uint32_t corner = k / AFFINE_WIDTH;
    const uint32_t x = corner % GRID_X, y = corner / GRID_X % GRID_Y;
    const uint32_t value = corner / (GRID_X * GRID_Y) * AFFINE_WIDTH + k % AFFINE_WIDTH;
    float sum = 0.0f;
    for (uint32_t beside = 0; beside < 4; ++beside) {
        // Corner of the cell at which this corner is.
        const uint32_t dx = beside % 2, dy = beside / 2;
        if (x < dx || y < dy || x - dx >= CELLS_X || y - dy >= CELLS_Y) continue;
        const uint32_t cell = (y - dy) * CELLS_X + x - dx;
        for (uint32_t share = 0; share < GRID_SHARES; ++share) {
            const uint32_t block = cell * GRID_SHARES + share;
            sum += a.sums[block * GRID_BWD_BLOCK + beside * COLUMN_WIDTH + value];
        }
    }
    a.gradient[k] = sum + a.total_variation * total_variation_bwd(a.table, k);
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    coast_table(const __grid_constant__ CoastArgs a) {
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= a.width) return;
    const float first = a.first_moments[k], second = a.second_moments[k];
    a.values[k] -= a.drift * first / (sqrtf(second) + a.epsilon);
    a.first_moments[k] = a.decay_1 * first;
    a.second_moments[k] = a.decay_2 * second;
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    move_table(const __grid_constant__ MoveArgs a) {
    const uint32_t k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= a.width) return;
    const float d = a.gradient[k];
    const float first = a.beta_1 * a.first_moments[k] + a.one_less_beta_1 * d;
    const float second = a.beta_2 * a.second_moments[k] + a.one_less_beta_2 * d * d;
    a.values[k] -= a.rate * first / (sqrtf(second) * a.inverse_root_correction + a.epsilon);
    a.first_moments[k] = first;
    a.second_moments[k] = second;
}

extern "C" __global__ void __launch_bounds__(APPEARANCE_BLOCK)
    fit_colors(const __grid_constant__ FitArgs a) {
    __shared__ double warp_sums[FIT_SUMS][APPEARANCE_BLOCK / WARP];
    double sums[FIT_SUMS] = {};
    const uint32_t pixels = pixels_of(a.size);
    for (uint32_t pixel = blockIdx.x * APPEARANCE_BLOCK + threadIdx.x; pixel < pixels;
         pixel += COLOR_SHARES * APPEARANCE_BLOCK) {
        if (a.mask && a.mask[pixel] == 0) continue;
        const float3 rgb = held(color_at(a.image, pixel));
        const double x[4] = {rgb.x, rgb.y, rgb.z, 1.0};
        uint32_t next = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
#pragma unroll
            for (uint32_t j = i; j < 4; ++j) sums[next++] += x[i] * x[j];
        }
#pragma unroll
        for (uint32_t channel = 0; channel < 3; ++channel) {
            const double y = a.target[uint64_t{pixel} * 3 + channel] / 255.0;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) sums[next++] += x[i] * y;
        }
    }
    const double total = block_sum(warp_sums, sums);
    if (threadIdx.x < FIT_SUMS) a.sums[blockIdx.x * FIT_SUMS + threadIdx.x] = total;
}
