// project: Gaussians to splats (EWA splatting, Zwicker et al. 2001), colour included.
// One thread per Gaussian. The splats of those that the view sees are appended to a compact list,
// whose order within a block of threads is that of the Gaussians, between blocks that of arrival.
// Shapes: geometry [lane blocks, 11, 32], sh and its moments as `state.cuh` says, splats and what
// belongs to them [capacity]: beyond it splats are counted but not written, and the host draws the view
// again.

#include "fault.cuh"
#include "lazy_adam.cuh"
#include "sh.cuh"
#include "state.cuh"
#include "tiles.cuh"

constexpr uint32_t PROJECT_WARPS = PROJECT_BLOCK / WARP;

__device__ inline float3 load_triple(const float* __restrict__ column, uint64_t at, uint32_t first) {
    return {column[at + component(first)], column[at + component(first + 1)],
            column[at + component(first + 2)]};
}

__device__ inline ShTables sh_tables(const ProjectArgs& a) {
    return {a.sh, a.sh_first, a.sh_second, a.sh_width};
}

// 0.5 + sum over k of basis_k(direction) sh_k, before it is held above 0. Where the coefficients are
// `LATE` they are taken as they will be once they have caught up.
template <class Storage, bool LATE>
__device__ inline float3 raw_color(const ProjectArgs& a, uint64_t gaussian, uint32_t age,
                                   float3 mean_world) {
    constexpr uint32_t AT_ONCE = Storage::AT_ONCE;
    const float* centre = a.camera.centre_world;
    const float3 direction = normalize(sub(mean_world, float3{centre[0], centre[1], centre[2]}));
    float basis[SH_MAX_COEFFICIENTS];
    sh_basis(a.sh_degree, direction, basis);
    typename Storage::Reader sh(sh_tables(a), gaussian);
    const CatchUp late = LATE ? catch_up_of(a.lazy, age) : CatchUp{};
    const uint32_t coefficients = (a.sh_degree + 1) * (a.sh_degree + 1);
    float3 color = {0.5f, 0.5f, 0.5f};
#pragma unroll
    for (uint32_t from = 0; from < SH_MAX_COEFFICIENTS; from += AT_ONCE) {
        if (from >= coefficients) continue;
        sh.template load<LATE>(3 * from, 3 * (coefficients - from));
#pragma unroll
        for (uint32_t i = 0; i < AT_ONCE; ++i) {
            if (from + i >= coefficients) continue;
            float c[3];
#pragma unroll
            for (uint32_t j = 0; j < 3; ++j) {
                const uint32_t k = 3 * i + j;
                c[j] = LATE ? caught_up<Storage::HELD>(late, from + i, sh.value(k), sh.first(k),
                                                       sh.second(k))
                            : sh.value(k);
            }
            color = add(color, scale(float3{c[0], c[1], c[2]}, basis[from + i]));
        }
    }
    return color;
}

__device__ inline bool is_finite(float3 v) {
    return isfinite(v.x) && isfinite(v.y) && isfinite(v.z);
}

// Says which coefficient is not finite; of finite ones whose sum is not, the constant one.
template <class Storage>
__device__ inline void report_color(const ProjectArgs& a, uint32_t gaussian, float3 color) {
    constexpr uint32_t SH_DC = 4, SH_REST = 5;
    const typename Storage::Reader sh(sh_tables(a), gaussian);
    for (uint32_t k = 0; k < a.sh_width; ++k) {
        const float value = sh.one(k);
        if (isfinite(value)) continue;
        report_fault(a.fault, gaussian, k < 3 ? SH_DC : SH_REST, isinf(value));
        return;
    }
    report_fault(a.fault, gaussian, SH_DC, isinf(color.x) || isinf(color.y) || isinf(color.z));
}

// Place of the thread's splat in the list, and the block's share of the totals added to them.
__device__ inline uint32_t append(const ProjectArgs& a, bool visible, uint32_t instances) {
    __shared__ uint32_t first_of_warp[PROJECT_WARPS];
    __shared__ unsigned long long block_instances;
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint32_t mask = __ballot_sync(FULL_WARP, visible);
    const uint32_t sum = warp_sum(instances);
    if (threadIdx.x == 0) block_instances = 0;
    if (lane == 0) first_of_warp[warp] = __popc(mask);
    __syncthreads();  // counts are there
    if (lane == 0 && sum > 0) atomicAdd(&block_instances, static_cast<unsigned long long>(sum));
    __syncthreads();  // the block's instances are added up
    if (threadIdx.x == 0) {
        uint32_t total = 0;
        for (uint32_t w = 0; w < PROJECT_WARPS; ++w) {
            const uint32_t count = first_of_warp[w];
            first_of_warp[w] = total;
            total += count;
        }
        const uint32_t first = total > 0 ? atomicAdd(&a.counts->visible, total) : 0;
        for (uint32_t w = 0; w < PROJECT_WARPS; ++w) first_of_warp[w] += first;
        if (block_instances > 0) {
            atomicAdd(reinterpret_cast<unsigned long long*>(&a.counts->instances), block_instances);
        }
    }
    __syncthreads();  // places are there
    return first_of_warp[warp] + __popc(mask & lanes_below());
}

// What is `EXTENDED` draws with the filters of the model and of the view.
template <class Storage, bool EXTENDED>
__device__ inline void project(const ProjectArgs& a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);

    bool visible = false;
    Ellipse e;
    Rect pixels;
    float opacity = 0.0f;
    float3 color;
    TileQuery query = {};
    if (gaussian < a.gaussians) {
        Shape shape;
        shape.mean_world = load_triple(geometry, at, MEAN);
        if (in_front(camera_from_world(a.camera, shape.mean_world).z, a.camera.near)) {
            const float logit = geometry[at + component(OPACITY_LOGIT)];
            opacity = sigmoid(logit);
            shape.log_scale = load_triple(geometry, at, LOG_SCALE);
            shape.quat = {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                          geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]};
            if (EXTENDED) {
                shape.smoothing = a.filter_3d == nullptr ? 0.0f : a.filter_3d[gaussian];
            }
            // An infinite logit or -infinity as a log-scale would give a splat; `step` reports them.
            visible = isfinite(logit) && is_finite(shape.log_scale) &&
                      ellipse<EXTENDED>(a.camera, chain<EXTENDED>(a.camera, shape), e);
            if (EXTENDED && visible) opacity *= e.kept;
            visible =
                visible && bounds(e, opacity, a.camera.size, pixels, query.exponent_min);
        }
        if (visible) {
            const uint32_t age = a.lazy.steps - a.sh_steps[gaussian / WARP];
            color = age > 0 ? raw_color<Storage, true>(a, gaussian, age, shape.mean_world)
                            : raw_color<Storage, false>(a, gaussian, age, shape.mean_world);
            // It would spread to every Gaussian behind, and `step` does not visit what is unseen.
            visible = is_finite(color);
            if (!visible) report_color<Storage>(a, gaussian, color);
        }
        if (!visible) a.splat_from_gaussian[gaussian] = UNSEEN;
    }
    if (visible) {
        query.mean_px = e.mean_px;
        query.conic = e.conic;
        query.tiles = tiles_of(pixels);
    }
    const uint32_t instances =
        for_each_row<PROJECT_BLOCK>(a.camera, query, [](const TileRow&, uint32_t) {});
    const uint32_t slot = append(a, visible, instances);
    if (!visible || slot >= a.capacity) return;

    a.splat_from_gaussian[gaussian] = slot;
    float4* const record = reinterpret_cast<float4*>(a.splats) + uint64_t{slot} * 3;
    record[0] = {e.mean_px.x, e.mean_px.y, opacity, query.exponent_min};
    record[1] = {e.conic.xx, e.conic.xy, e.conic.yy, e.depth};
    record[2] = {fmaxf(color.x, 0.0f), fmaxf(color.y, 0.0f), fmaxf(color.z, 0.0f),
                 __uint_as_float(gaussian)};
    a.tiles[slot] = {query.tiles.x0, query.tiles.y0, query.tiles.x1, query.tiles.y1};
    // Depths are positive: their bits order as they do.
    a.depth_keys[slot] = __float_as_uint(e.depth);
    a.slots[slot] = slot;
    a.instance_counts[slot] = instances;
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd(const __grid_constant__ ProjectArgs a) {
    project<Full, false>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_compact(const __grid_constant__ ProjectArgs a) {
    project<Compact, false>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_extended(const __grid_constant__ ProjectArgs a) {
    project<Full, true>(a);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_fwd_extended_compact(const __grid_constant__ ProjectArgs a) {
    project<Compact, true>(a);
}
