// adam: the projection's backward pass fused with Adam (Kingma and Ba 2015), one thread per Gaussian,
// one warp per lane block.
// Parameter gradients live in registers only. Geometry moves in every step, by momentum if the view does not
// see it, as in dense Adam. The colours of a lane block that the view does not see are deferred and catch up
// later to equal values (`state.cuh`). Moments are stored before bias correction.
// Shapes: geometry [lane blocks, 11, 32]; sh and moments in the layouts of `state.cuh`; gradients
// [visible, record], d_features [visible, 4]; surface [n, 12].

#include "adam.cuh"
#include "gaussian.cuh"
#include "sh.cuh"

// Gradient of the colour, and the SH basis with its gradient.
struct ColorStep {
    float3 d_color;
    float rest_kept;  // share of the coefficients above degree 0 that remains
    float basis[SH_MAX_COEFFICIENTS];
    float d_basis[SH_MAX_COEFFICIENTS];
};

// Moves the coefficients from `from` on that belong to `count` values.
template <bool LATE, class Sh>
__device__ inline void step_coefficients(const AdamArgs& a, Sh& sh, uint32_t from, uint32_t count,
                                         const CatchUp& late, ColorStep& step) {
    const float3 d_color = step.d_color;
    sh.load(3 * from, count);
#pragma unroll
    for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
        if (3 * i >= count) continue;
        const uint32_t k = from + i;
        AdamRow<3> c = sh.template get<LATE>(i, k, late);
        step.d_basis[k] = c.value[0] * d_color.x + c.value[1] * d_color.y + c.value[2] * d_color.z;
        sh.move(a, c, k, scale(d_color, step.basis[k]));
        if (k > 0) decay(c, step.rest_kept);
        sh.put(i, c);
    }
    sh.store(3 * from, count);
}

template <bool LATE, class Sh>
__device__ inline void step_all_coefficients(const AdamArgs& a, Sh& sh, const CatchUp& late,
                                             ColorStep& step) {
    constexpr uint32_t WHOLE = 3 * Sh::AT_ONCE;
#pragma unroll
    for (uint32_t from = 0; from < SH_MAX_COEFFICIENTS; from += Sh::AT_ONCE) {
        if (3 * from >= a.sh_width) continue;
        const uint32_t count = min(WHOLE, a.sh_width - 3 * from);
        // A constant count lets the compiler remove the checks.
        if (count == WHOLE) {
            step_coefficients<LATE>(a, sh, from, WHOLE, late, step);
        } else {
            step_coefficients<LATE>(a, sh, from, count, late, step);
        }
    }
}

// Moves the coefficients and returns the gradient of the viewing direction.
template <class Sh>
__device__ inline float3 step_color(const AdamArgs& a, uint32_t gaussian, bool seen, Sh sh,
                                    uint32_t age, float3 direction, float3 d_color) {
    ColorStep step = {d_color, seen ? a.sh_kept : 1.0f};
    sh_basis(a.views[0].sh_degree, direction, step.basis);
    const CatchUp late = catch_up_of(a.lazy, a.sh_drifts, age);
    sh.see_gradient(d_color);
    sh.rescale(a, late, largest_gradient(step.basis, d_color));
    if (age > 0) {
        step_all_coefficients<true>(a, sh, late, step);
    } else {
        step_all_coefficients<false>(a, sh, late, step);
    }
    sh.store_scales();
    sh.report(a, gaussian);
    return sh_basis_bwd(a.views[0].sh_degree, direction, step.d_basis);
}

// Geometry of a Gaussian; the colours follow in other tables.
template <class Storage>
struct GaussianState {
    typename Storage::Geometry geometry;
    uint32_t seed;

    __device__ AdamRow<GEOMETRY_WIDTH> load() const { return geometry.load(); }
};

template <class Storage, bool EXTENDED>
__device__ inline GaussianState<Storage> state_of(Gaussian<Storage, EXTENDED>, const AdamArgs& a,
                                                  uint32_t gaussian) {
    return {typename Storage::Geometry(a, gaussian),
            Storage::SHORT ? rounding_seed(a.key, gaussian) : 0};
}

// Moves the colours of a visible lane block and returns their gradient of the centre.
template <class Storage, bool EXTENDED>
__device__ inline float3 step_appearance(Gaussian<Storage, EXTENDED>, const AdamArgs& a,
                                         uint32_t gaussian, bool seen,
                                         const GaussianState<Storage>& state,
                                         const ScreenGradient& d_splat) {
    float3 d_mean_by_color = {0.0f, 0.0f, 0.0f};
    if (__any_sync(FULL_WARP, seen)) {
        const uint32_t block = gaussian / WARP;
        const Row<float>& mean = state.geometry.value;
        const float* const centre = a.views[0].camera.centre_world;
        const float3 offset = {mean[MEAN] - centre[0], mean[MEAN + 1] - centre[1],
                               mean[MEAN + 2] - centre[2]};
        const MovedSh at = moved_sh<Storage::Sh::CACHED>(a, gaussian);
        const typename Storage::Sh sh(at.tables, at.row, state.seed);
        const uint32_t age = a.lazy.steps - a.sh_steps[block];
        const float3 d_direction =
            step_color(a, gaussian, seen, sh, age, normalize(offset), d_splat.d_color);
        if (seen && a.views[0].by_distances == 0) {
            d_mean_by_color = normalize_bwd(offset, d_direction);
        }
        __syncwarp();  // all lanes have read the age
        if (gaussian % WARP == 0) mark_moved(a, block, at.line);
    }
    return d_mean_by_color;
}

// For Gaussians and surfels, by `shape_bwd` and `gradient_of`.
template <class Primitive, class Gradient>
__device__ inline GeometryGradient row_bwd(Primitive, const AdamArgs& a, uint32_t gaussian,
                                           uint32_t splat_index, const AdamRow<GEOMETRY_WIDTH>& g,
                                           const Gradient& d_splat, float3 d_mean_by_color) {
    ShapeGradient d = {};
    if (splat_index != UNSEEN) {
        const Shape shape = shape_of<Primitive::IS_EXTENDED>(a, gaussian, g);
        d = shape_bwd(Primitive{}, a.views[0], splat_index, shape, d_splat);
        d.d_mean_world = add(d.d_mean_world, d_mean_by_color);
    }
    return {d, d_splat.d_ellipse.d_log_kept, splat_index != UNSEEN};
}

template <class Storage, bool EXTENDED>
__device__ inline void step_row(Gaussian<Storage, EXTENDED>, const AdamArgs& a, uint32_t gaussian,
                                const GaussianState<Storage>& state, AdamRow<GEOMETRY_WIDTH>& g,
                                const GeometryGradient& d) {
    step_geometry<Storage, EXTENDED>(a, gaussian, state.geometry, g, d, 1.0f, state.seed);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InFull, false>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_half(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InHalfColors, false>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_compact(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InCompact, false>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_extended(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InFull, true>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_extended_half(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InHalfColors, true>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_extended_compact(const __grid_constant__ AdamArgs a) {
    step<Gaussian<InCompact, true>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_surfels(const __grid_constant__ AdamArgs a) {
    step<Surfels<InFull>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_surfels_half(const __grid_constant__ AdamArgs a) {
    step<Surfels<InHalfColors>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_surfels_compact(const __grid_constant__ AdamArgs a) {
    step<Surfels<InCompact>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_vertices(const __grid_constant__ AdamArgs a) {
    step<Vertices<InFull>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_vertices_half(const __grid_constant__ AdamArgs a) {
    step<Vertices<InHalfColors>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_vertices_compact(const __grid_constant__ AdamArgs a) {
    step<Vertices<InCompact>>(a);
}

// Updates the deferred colours of every lane block; one warp each.
template <class Sh>
__device__ inline void catch_up_block(const CatchUpArgs& a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t block = gaussian / WARP;
    if (block >= a.lane_blocks) return;
    const uint32_t age = a.lazy.steps - a.sh_steps[block];
    if (age == 0) return;
    const uint32_t seed = Sh::SHORT ? rounding_seed(a.key, gaussian) : 0;
    Sh sh({a.sh, a.sh_first, a.sh_second, a.sh_width}, gaussian, seed);
    const CatchUp late = catch_up_of(a.lazy, a.sh_drifts, age);
    sh.decay_scales(late);
    for (uint32_t from = 0; 3 * from < a.sh_width; from += Sh::AT_ONCE) {
        const uint32_t count = min(3 * Sh::AT_ONCE, a.sh_width - 3 * from);
        sh.load(3 * from, count);
#pragma unroll
        for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
            if (3 * i >= count) continue;
            sh.put_late(i, sh.template get<true>(i, from + i, late));
        }
        sh.store_late(3 * from, count);
    }
    sh.store_scales();
    __syncwarp();  // all lanes have read the age
    if (gaussian % WARP == 0) a.sh_steps[block] = a.lazy.steps;
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    catch_up_all(const __grid_constant__ CatchUpArgs a) {
    catch_up_block<FullSh<1>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    catch_up_all_half(const __grid_constant__ CatchUpArgs a) {
    catch_up_block<HalfSh<4>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    catch_up_all_compact(const __grid_constant__ CatchUpArgs a) {
    catch_up_block<CompactSh<4>>(a);
}
