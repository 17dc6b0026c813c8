// probe: exposes functions of the headers, for the tests that compare them with their twins.
// One thread per row of inputs; `function` selects the function. Shapes: inputs [n, inputs of the function],
// outputs [n, outputs of the function].

#include "compact.cuh"
#include "field.cuh"
#include "linalg.cuh"
#include "normals.cuh"
#include "random.cuh"
#include "sh.cuh"
#include "splat.cuh"

__device__ inline float3 triple(const float* v) { return {v[0], v[1], v[2]}; }

__device__ inline Quat quat(const float* v) { return {v[0], v[1], v[2], v[3]}; }

__device__ inline float2 pair(const float* v) { return {v[0], v[1]}; }

__device__ inline Mat3 matrix(const float* v) { return {triple(v), triple(v + 3), triple(v + 6)}; }

__device__ inline Sym2 symmetric(const float* v) { return {v[0], v[1], v[2]}; }

__device__ inline Shape shape(const float* v) { return {triple(v), triple(v + 3), quat(v + 6), 0.0f}; }

// Columns of pixels.
struct Columns {
    uint16_t first, end;
};

// Scales, and the share of the opacity last.
__device__ inline Quat wide_and_kept(const float* v) {
    float kept;
    const float3 wide = smoothed(triple(v), v[3], kept);
    return {wide.x, wide.y, wide.z, kept};
}

__device__ inline float2 shared(const float* v) {
    const Share s = share_of(v[0], static_cast<uint32_t>(v[1]), v[2]);
    return {static_cast<float>(s.logit), static_cast<float>(s.log_growth)};
}

// Log-scales, quaternion, opacity logit; the centre is the origin.
__device__ inline DensityKernel kernel(const float* v) {
    return density_kernel_of({0.0f, 0.0f, 0.0f}, triple(v), quat(v + 3), v[7]);
}

__device__ inline float dense(const float* v) {
    float3 whitened;
    return density(kernel(v), triple(v + 8), whitened);
}

// Out of line, like the next function and `projected_bwd`: the kernel is short of registers.
__device__ inline __noinline__ DensityKernelGradient dense_bwd(const float* v) {
    const DensityKernel of = kernel(v);
    const float3 offset = triple(v + 8);
    float3 whitened;
    const float found = density(of, offset, whitened);
    DensityKernelGradient d = {};
    d.d_mean_world = density_bwd(of, offset, whitened, found, v[11], d);
    return d;
}

__device__ inline __noinline__ DensityKernelGradient sampled_bwd(const float* v) {
    DensityKernelGradient d = {};
    sample_bwd(kernel(v), triple(v + 8), triple(v + 11), v[14], d);
    return d;
}

__device__ inline float2 surface_bwd(const float* v) {
    return surface_density_bwd(v[0], v[1], surface_density(v[0], v[1]), v[2]);
}

__device__ inline Quat turned(const float* v) {
    float side;
    const float3 normal = aligned(triple(v), triple(v + 3), side);
    return {normal.x, normal.y, normal.z, side};
}

// Writes outputs one after another.
struct Writer {
    float* to;

    __device__ void put(float v) { *to++ = v; }
    __device__ void put(bool v) { put(v ? 1.0f : 0.0f); }
    __device__ void put(uint16_t v) { put(static_cast<float>(v)); }
    __device__ void put(float2 v) { put(v.x), put(v.y); }
    __device__ void put(float3 v) { put(v.x), put(v.y), put(v.z); }
    __device__ void put(Quat v) { put(v.w), put(v.x), put(v.y), put(v.z); }
    __device__ void put(const Mat3& v) { put(v.row[0]), put(v.row[1]), put(v.row[2]); }
    __device__ void put(const DensityKernelGradient& v) {
        put(v.d_mean_world), put(v.d_log_scale), put(v.d_axes), put(v.d_opacity_logit);
    }
    __device__ void put(Sym2 v) { put(v.xx), put(v.xy), put(v.yy); }
    __device__ void put(Rect v) { put(v.x0), put(v.y0), put(v.x1), put(v.y1); }
    __device__ void put(Columns v) { put(v.first), put(v.end); }
    __device__ void put(const float (&v)[SH_MAX_COEFFICIENTS]) {
        for (float value : v) put(value);
    }
    // As bits, 16 per float, which holds them exactly.
    __device__ void put(uint64_t v) {
        for (int part = 0; part < 4; ++part) put(static_cast<uint16_t>(v >> 16 * part));
    }
    __device__ void put(uint32_t v) {
        put(static_cast<uint16_t>(v)), put(static_cast<uint16_t>(v >> 16));
    }
    __device__ void put(double v) { put(static_cast<uint64_t>(__double_as_longlong(v))); }
};

__device__ inline uint64_t word(const float* v) {
    uint64_t bits = 0;
    for (int part = 0; part < 4; ++part) bits |= static_cast<uint64_t>(v[part]) << 16 * part;
    return bits;
}

// Returns a word from two floats, one per half.
__device__ inline uint32_t half_words(const float* v) {
    return static_cast<uint32_t>(v[0]) | static_cast<uint32_t>(v[1]) << 16;
}

__device__ inline uint32_t place(const float* v) { return static_cast<uint32_t>(*v); }

__device__ inline uint32_t third_roll(const float* v) {
    uint32_t dice = half_words(v);
    roll(dice);
    roll(dice);
    return roll(dice);
}

struct Basis {
    float values[SH_MAX_COEFFICIENTS];
};

__device__ inline Basis basis(const float* v) {
    Basis b;
    sh_basis(static_cast<uint32_t>(v[3]), triple(v), b.values);
    return b;
}

__device__ inline float3 basis_bwd(const float* v) {
    Basis d_b;
    for (int k = 0; k < SH_MAX_COEFFICIENTS; ++k) d_b.values[k] = v[4 + k];
    return sh_basis_bwd(static_cast<uint32_t>(v[3]), triple(v), d_b.values);
}

__device__ inline bool is_drawn(const ViewCamera& view, const float* v) {
    return is_in_view(view, camera_from_world(view, triple(v)));
}

// Zeros if the Gaussian is not drawn.
__device__ inline Ellipse projected(const ViewCamera& view, const float* v) {
    Ellipse e;
    const bool drawn = is_drawn(view, v) && ellipse(view, chain(view, shape(v)), e);
    return drawn ? e : Ellipse{};
}

__device__ inline __noinline__ ShapeGradient projected_bwd(const ViewCamera& view, const float* v) {
    if (!is_drawn(view, v)) return {};
    return project_bwd(view, shape(v), {{v[10], v[11]}, symmetric(v + 12), 0.0f, 0.0f});
}

struct Seen {
    bool at_all;
    Rect pixels;
    float exponent_min;
};

// Zeros if the ellipse is not visible.
__device__ inline Seen seen(const ViewCamera& view, const float* v) {
    const Ellipse e = {{v[0], v[1]}, 1.0f, {v[2], 0.0f, v[3]}, {}, 1.0f};
    Seen s;
    s.at_all = bounds(e, v[4], view.size, s.pixels, s.exponent_min);
    return s.at_all ? s : Seen{};
}

// Zeros if it reaches no column.
__device__ inline Columns spanned(const ViewCamera& view, const float* v) {
    const Spans s = spans_of({v[0], v[1]}, symmetric(v + 2), v[5], view.size[1]);
    uint32_t first, end;
    columns(s, v[6] + 0.5f - v[1], v[7] - 0.5f - v[1], view.size[0], first, end);
    if (first >= end) return {0, 0};
    return {static_cast<uint16_t>(first), static_cast<uint16_t>(end)};
}

// 0 if there is no slope.
__device__ inline float sloped(const float* v) {
    return has_slope(v[1], v[2]) ? slope(v[0], v[1], v[2]) : 0.0f;
}

#define PROBE(FUNCTION, VALUE) \
    case PROBE_##FUNCTION:     \
        out.put(VALUE);        \
        break

extern "C" __global__ void __launch_bounds__(PROBE_BLOCK)
    probe(const __grid_constant__ ProbeArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.n) return;
    const float* v = a.inputs + uint64_t{i} * a.input_width;
    Writer out = {a.outputs + uint64_t{i} * a.output_width};
    switch (a.function) {
        PROBE(ADD, add(triple(v), triple(v + 3)));
        PROBE(SUB, sub(triple(v), triple(v + 3)));
        PROBE(SCALE, scale(triple(v), v[3]));
        PROBE(DOT, dot(triple(v), triple(v + 3)));
        PROBE(CROSS, cross(triple(v), triple(v + 3)));
        PROBE(NORMALIZE, normalize(triple(v)));
        PROBE(NORMALIZE_BWD, normalize_bwd(triple(v), triple(v + 3)));
        PROBE(MUL, mul(matrix(v), triple(v + 9)));
        PROBE(MUL_TRANSPOSED, mul_transposed(matrix(v), triple(v + 9)));
        PROBE(MAT_MUL, mat_mul(matrix(v), matrix(v + 9)));
        PROBE(TRANSPOSE, transpose(matrix(v)));
        PROBE(ROTATION, rotation(quat(v)));
        PROBE(ROTATION_BWD, rotation_bwd(quat(v), matrix(v + 4)));
        PROBE(SIGMOID, sigmoid(v[0]));
        PROBE(SIGMOID_BWD, sigmoid_bwd(v[0], v[1]));
        PROBE(SH_BASIS, basis(v).values);
        PROBE(SH_BASIS_BWD, basis_bwd(v));
        PROBE(PROJECTED_MEAN, projected(a.camera, v).mean_px);
        PROBE(PROJECTED_DEPTH, projected(a.camera, v).depth);
        PROBE(PROJECTED_COVARIANCE, projected(a.camera, v).cov_px2);
        PROBE(PROJECTED_CONIC, projected(a.camera, v).conic);
        PROBE(D_MEAN, projected_bwd(a.camera, v).d_mean_world);
        PROBE(D_LOG_SCALE, projected_bwd(a.camera, v).d_log_scale);
        PROBE(D_QUAT, projected_bwd(a.camera, v).d_quat);
        PROBE(BOUNDS, seen(a.camera, v).pixels);
        PROBE(BOUNDS_EXPONENT, seen(a.camera, v).exponent_min);
        PROBE(COLUMNS, spanned(a.camera, v));
        PROBE(ENCODE_HALF, encode_half(v[0], half_words(v + 1)));
        PROBE(DECODE_HALF, decode_half(half_words(v), place(v + 2)));
        PROBE(ENCODE_BFLOAT, encode_bfloat(v[0], half_words(v + 1)));
        PROBE(DECODE_BFLOAT, decode_bfloat(half_words(v), place(v + 2)));
        PROBE(WITH_HALF, with_half(half_words(v), place(v + 2), half_words(v + 3)));
        PROBE(ENCODE_FIRST, encode_first(v[0], half_words(v + 1)));
        PROBE(DECODE_FIRST, decode_first(half_words(v), place(v + 2)));
        PROBE(ENCODE_SECOND, encode_second(v[0], half_words(v + 1)));
        PROBE(DECODE_SECOND, decode_second(half_words(v), place(v + 2)));
        PROBE(WITH_BYTE, with_byte(half_words(v), place(v + 2), half_words(v + 3)));
        PROBE(ROUNDED_SCALE, rounded_scale(v[0]));
        PROBE(INVERSE_SCALE, inverse_scale(v[0]));
        PROBE(HELD_QUOTIENT, held_quotient(v[0], v[1]));
        PROBE(ROLL, third_roll(v));
        PROBE(DRAW_WEIGHT, static_cast<uint32_t>(draw_weight(v[0])));
        PROBE(SHARE, shared(v));
        PROBE(KEPT_ON_SCREEN, kept_on_screen(v[0], v[1]));
        PROBE(KEPT_ON_SCREEN_BWD, kept_on_screen_bwd(v[0], v[1], v[2]));
        PROBE(SMOOTHED, wide_and_kept(v));
        PROBE(SMOOTHED_BWD, smoothed_bwd(triple(v), v[3], triple(v + 4), v[7]));
        PROBE(LOWERED_LOGIT, lowered_logit(v[0], v[1], v[2]));
        PROBE(DENSITY, dense(v));
        PROBE(DENSITY_BWD, dense_bwd(v));
        PROBE(SAMPLE_BWD, sampled_bwd(v));
        PROBE(SURFACE_DENSITY, surface_density(v[0], v[1]));
        PROBE(SURFACE_DENSITY_BWD, surface_bwd(v));
        PROBE(ALIGNED, turned(v));
        PROBE(NORMAL_WEIGHT, normal_weight(kernel(v), triple(v + 8), v[11]));
        PROBE(ENTROPY, entropy(v[0]));
        PROBE(ENTROPY_BWD, entropy_bwd(v[0], v[1]));
        PROBE(FACING_NORMAL, facing_normal(a.camera, shape(v)));
        PROBE(FACING_NORMAL_BWD, facing_normal_bwd(a.camera, shape(v), triple(v + 10)));
        PROBE(BLENDED_NORMAL, blended_normal(pair(v)));
        PROBE(BLENDED_NORMAL_BWD, blended_normal_bwd(pair(v), triple(v + 2)));
        PROBE(SLOPE, sloped(v));
        PROBE(SLOPE_BWD, slope_bwd(v[0], v[1], v[2], v[3]));
        PROBE(SURFACE_NORMAL, surface_normal(pair(v), pair(v + 2)));
        PROBE(SURFACE_NORMAL_BWD, surface_normal_bwd(pair(v), pair(v + 2), triple(v + 4)));
        PROBE(RANDOM_BITS, random_bits(word(v), word(v + 4)));
        PROBE(RANDOM_UNIFORM, random_uniform(word(v), word(v + 4)));
        PROBE(RANDOM_NORMAL, random_normal(word(v), word(v + 4)));
    }
}
