// adam_views: one step of Adam down the mean gradient of several views, one thread per Gaussian, one
// warp per lane block. `adam.cu` is the version for one view.
//
// A view contributes 12 floats per Gaussian (16 per surfel). The gradients of all views are summed in registers,
// and a Gaussian's state is read and written once per step. For the colours, the viewing direction, the gradient of
// the colour and room for the gradient of the direction are kept in shared memory for each view during the pass over
// the coefficients.
// The colours of a lane block that no view sees are deferred, as in `adam.cu`.
// Shapes: as in `adam.cu`, with the records of each view.

#include "adam.cuh"
#include "sh.cuh"

// Directions and gradients of a view and a block's Gaussians. Stored by component, so that the lanes of a warp access
// different banks.
struct ViewColors {
    float direction[3][ADAM_BLOCK], d_color[3][ADAM_BLOCK], d_direction[3][ADAM_BLOCK];
};

__device__ inline float3 lane_value(const float (&rows)[3][ADAM_BLOCK]) {
    return {rows[0][threadIdx.x], rows[1][threadIdx.x], rows[2][threadIdx.x]};
}

__device__ inline void set_lane_value(float (&rows)[3][ADAM_BLOCK], float3 value) {
    rows[0][threadIdx.x] = value.x;
    rows[1][threadIdx.x] = value.y;
    rows[2][threadIdx.x] = value.z;
}

__device__ inline float3 offset_from(const ViewArgs& view, const Row<float>& mean) {
    const float* const centre = view.camera.centre_world;
    return {mean[MEAN] - centre[0], mean[MEAN + 1] - centre[1], mean[MEAN + 2] - centre[2]};
}

// Stages the views' gradients of the Gaussian's colour; returns true if any view sees the Gaussian. Loads a piece
// completely before staging it, so that the loads overlap.
template <uint32_t RECORD>
__device__ inline bool stage_colors(const AdamArgs& a, uint32_t gaussian, const Row<float>& mean,
                                    ViewColors* colors) {
    uint32_t splat_indices[MAX_VIEWS];
#pragma unroll
    for (uint32_t v = 0; v < MAX_VIEWS; ++v) {
        splat_indices[v] = v < a.view_count ? splat_index_in(a, v, gaussian) : UNSEEN;
    }
    float3 d_colors[MAX_VIEWS];
    bool seen = false;
#pragma unroll
    for (uint32_t v = 0; v < MAX_VIEWS; ++v) {
        d_colors[v] = {0.0f, 0.0f, 0.0f};
        if (splat_indices[v] == UNSEEN) continue;
        seen = true;
        d_colors[v] = float3_of(load_gradient(a.views[v].gradients, splat_indices[v], RECORD).d_color);
    }
#pragma unroll
    for (uint32_t v = 0; v < MAX_VIEWS; ++v) {
        if (v >= a.view_count) continue;
        const bool is_seen = splat_indices[v] != UNSEEN;
        set_lane_value(colors[v].direction, is_seen ? normalize(offset_from(a.views[v], mean))
                                                    : float3{0.0f, 0.0f, 0.0f});
        set_lane_value(colors[v].d_color, scale(d_colors[v], a.view_share));
        set_lane_value(colors[v].d_direction, {0.0f, 0.0f, 0.0f});
    }
    return seen;
}

// Returns a bound of the absolute gradients of the coefficients, over all views.
__device__ inline float largest_sum(const AdamArgs& a, const ViewColors* colors) {
    float largest = 0.0f;
    for (uint32_t v = 0; v < a.view_count; ++v) {
        float basis[SH_MAX_COEFFICIENTS];
        sh_basis(a.views[v].sh_degree, lane_value(colors[v].direction), basis);
        largest += largest_gradient(basis, lane_value(colors[v].d_color));
    }
    return largest;
}

// Moves the coefficients, and adds the gradients of the directions to the views.
template <class Sh>
__device__ inline void step_colors(const AdamArgs& a, uint32_t gaussian, bool seen, Sh sh,
                                   uint32_t age, ViewColors* colors) {
    const float rest_kept = seen ? a.sh_kept : 1.0f;
    const CatchUp late = catch_up_of(a.lazy, a.sh_drifts, age);
    for (uint32_t v = 0; v < a.view_count; ++v) sh.see_gradient(lane_value(colors[v].d_color));
    sh.rescale(a, late, Sh::SHORT ? largest_sum(a, colors) : 0.0f);
#pragma unroll
    for (uint32_t from = 0; from < SH_MAX_COEFFICIENTS; from += Sh::AT_ONCE) {
        if (3 * from >= a.sh_width) continue;
        const uint32_t count = min(3 * Sh::AT_ONCE, a.sh_width - 3 * from);
        sh.load(3 * from, count);
        AdamRow<3> c[Sh::AT_ONCE];
        float3 d[Sh::AT_ONCE] = {};
#pragma unroll
        for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
            if (3 * i >= count) continue;
            c[i] = age > 0 ? sh.template get<true>(i, from + i, late)
                           : sh.template get<false>(i, from + i, late);
        }
        for (uint32_t v = 0; v < a.view_count; ++v) {
            const uint32_t degree = a.views[v].sh_degree;
            const float3 direction = lane_value(colors[v].direction);
            const float3 d_color = lane_value(colors[v].d_color);
            float3 d_direction = lane_value(colors[v].d_direction);
            float basis[SH_MAX_COEFFICIENTS];
            sh_basis(degree, direction, basis);
#pragma unroll
            for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
                const uint32_t k = from + i;
                if (3 * i >= count || k >= sh_coefficients(degree)) continue;
                d[i] = add(d[i], scale(d_color, basis[k]));
                const float3 color = {c[i].value[0], c[i].value[1], c[i].value[2]};
                d_direction =
                    add(d_direction, scale(sh_gradient(k, direction), dot(color, d_color)));
            }
            set_lane_value(colors[v].d_direction, d_direction);
        }
#pragma unroll
        for (uint32_t i = 0; i < Sh::AT_ONCE; ++i) {
            if (3 * i >= count) continue;
            sh.move(a, c[i], from + i, d[i]);
            if (from + i > 0) decay(c[i], rest_kept);
            sh.put(i, c[i]);
        }
        sh.store(3 * from, count);
    }
    sh.store_scales();
    sh.report(a, gaussian);
}

// Adds the gradients of a view that sees the Gaussian to those of its geometry.
template <class Primitive>
__device__ inline void add_view(const AdamArgs& a, const ViewArgs& view, uint32_t splat_index,
                                const Shape& shape, const float3& d_mean_by_color,
                                GeometryGradient& sum) {
    const float share = a.view_share;
    const auto d_splat = gradient_of(Primitive{}, view, splat_index);
    const ShapeGradient d = shape_bwd(Primitive{}, view, splat_index, shape, d_splat);
    ShapeGradient& all = sum.d_shape;
    // The gradient through the colour is already scaled.
    all.d_mean_world = add(add(all.d_mean_world, scale(d.d_mean_world, share)), d_mean_by_color);
    all.d_log_scale = add(all.d_log_scale, scale(d.d_log_scale, share));
    all.d_quat = {all.d_quat.w + share * d.d_quat.w, all.d_quat.x + share * d.d_quat.x,
                  all.d_quat.y + share * d.d_quat.y, all.d_quat.z + share * d.d_quat.z};
    sum.d_log_opacity += share * d_splat.d_ellipse.d_log_kept;
}

template <class Storage, class Primitive = Gaussian<Storage, true>>
__device__ inline void step_views(const AdamArgs& a) {
    __shared__ ViewColors colors[MAX_VIEWS];
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t block = gaussian / WARP;
    if (block * WARP >= a.gaussians) return;
    if (gaussian == 0) remember_drift(a.lazy, a.sh_drifts);
    const typename Storage::Geometry geometry(a, gaussian);
    const uint32_t seed = Storage::SHORT ? rounding_seed(a.key, gaussian) : 0;
    constexpr uint32_t WIDTH = Primitive::Footprint::QUADS * 4;
    const bool seen = stage_colors<WIDTH>(a, gaussian, geometry.value, colors);
    if (__any_sync(FULL_WARP, seen)) {
        const MovedSh at = moved_sh<Storage::Sh::CACHED>(a, gaussian);
        const typename Storage::Sh sh(at.tables, at.row, seed);
        step_colors(a, gaussian, seen, sh, a.lazy.steps - a.sh_steps[block], colors);
        __syncwarp();  // all lanes have read the age
        if (gaussian % WARP == 0) mark_moved(a, block, at.line);
    }

    AdamRow<GEOMETRY_WIDTH> g = geometry.load();
    GeometryGradient sum = {};
    sum.seen = seen;
    if (seen) {
        const Shape shape = shape_of<true>(a, gaussian, g);
        for (uint32_t v = 0; v < a.view_count; ++v) {
            const uint32_t splat_index = splat_index_in(a, v, gaussian);
            if (splat_index == UNSEEN) continue;
            float3 d_mean_by_color = {0.0f, 0.0f, 0.0f};
            if (a.views[v].by_distances == 0) {
                d_mean_by_color = normalize_bwd(offset_from(a.views[v], geometry.value),
                                                lane_value(colors[v].d_direction));
            }
            add_view<Primitive>(a, a.views[v], splat_index, shape, d_mean_by_color, sum);
        }
    }
    step_geometry<Storage, true>(a, gaussian, geometry, g, sum, a.view_share, seed);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views(const __grid_constant__ AdamArgs a) {
    step_views<InFull>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_half(const __grid_constant__ AdamArgs a) {
    step_views<InHalfColors>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_compact(const __grid_constant__ AdamArgs a) {
    step_views<InCompact>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_surfels(const __grid_constant__ AdamArgs a) {
    step_views<InFull, Surfels<InFull>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_surfels_half(const __grid_constant__ AdamArgs a) {
    step_views<InHalfColors, Surfels<InHalfColors>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_surfels_compact(const __grid_constant__ AdamArgs a) {
    step_views<InCompact, Surfels<InCompact>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_vertices(const __grid_constant__ AdamArgs a) {
    step_views<InFull, Vertices<InFull>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_vertices_half(const __grid_constant__ AdamArgs a) {
    step_views<InHalfColors, Vertices<InHalfColors>>(a);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    adam_views_vertices_compact(const __grid_constant__ AdamArgs a) {
    step_views<InCompact, Vertices<InCompact>>(a);
}
