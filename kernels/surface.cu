// surface: the terms of SuGaR (Guedon and Lepetit 2024, section 4.1) that align Gaussians with surfaces, and their
// gradients, which are added to those of the geometry.
// `count_seen` and `list_seen` have one thread per Gaussian and one warp per lane block; `regularise_entropy` has one
// thread per visible Gaussian. In `regularise_16` and `regularise_32` a sample has 16 or 32 lanes, one per neighbour of
// its Gaussian. Pairs are not stored: sums over the neighbours are sums over the lanes.
// `regularise_shown_*` compares distances from the surface that the view's depths show, after the backward pass.
// `compare_shown_*` does so before it, with the same samples, for the gradient of the depths.
// `find_farthest` has one thread per splat, `show_depths` one per pixel; `count_near` and `list_near` are like
// `count_seen` and `list_seen`.
// Shapes: geometry [lane blocks, 11, 32], near [n, list_len], d_geometry [n, 12], rows [seen],
// splats [visible, 12], depths [h, w], surface and d_surface [h, w, 4].

#include "field.cuh"
#include "layout.cuh"
#include "random.cuh"

static_assert(SURFACE_BLOCK % WARP == 0, "whole warps");
static_assert(SURFACE_WIDTH % 4 == 0 && SURFACE_WIDTH >= GEOMETRY_WIDTH, "a row is whole vectors");

// Adds a block's sum to a term; all threads of the block must call it. `of_warp` is free after the next barrier.
__device__ inline void add_to_term(float value, float* of_warp, double* term) {
    const float of_lanes = warp_sum(value);
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = of_lanes;
    __syncthreads();  // all warps have added
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (uint32_t warp = 0; warp < SURFACE_BLOCK / WARP; ++warp) sum += of_warp[warp];
    atomicAdd(term, sum);
}

// Sums over the lanes of the thread's sample; all lanes get the sum.
template <uint32_t LANES>
__device__ inline float sum_of(float value) {
#pragma unroll
    for (uint32_t distance = LANES / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(FULL_WARP, value, distance);
    }
    return value;
}

template <uint32_t LANES>
__device__ inline float3 sum_of(float3 v) {
    return {sum_of<LANES>(v.x), sum_of<LANES>(v.y), sum_of<LANES>(v.z)};
}

__device__ inline float3 load_triple(const float* __restrict__ geometry, uint64_t at,
                                     uint32_t first) {
    return {geometry[at + component(first)], geometry[at + component(first + 1)],
            geometry[at + component(first + 2)]};
}

__device__ inline Quat load_quat(const float* __restrict__ geometry, uint64_t at) {
    return {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
            geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]};
}

__device__ inline DensityKernel load_density_kernel(const float* __restrict__ geometry, uint64_t at, Quat quat) {
    return density_kernel_of(load_triple(geometry, at, MEAN), load_triple(geometry, at, LOG_SCALE), quat,
                   geometry[at + component(OPACITY_LOGIT)]);
}

__device__ inline void add_some(float4* at, float4 value) {
    // NaN is added.
    if (value.x == 0.0f && value.y == 0.0f && value.z == 0.0f && value.w == 0.0f) return;
    add_quad(at, value);
}

__device__ inline void add_row(float* d_geometry, uint32_t row, const DensityKernelGradient& d, Quat quat) {
    const Quat q = rotation_bwd(quat, d.d_axes);
    const float3 mean = d.d_mean_world, size = d.d_log_scale;
    float4* const at =
        reinterpret_cast<float4*>(d_geometry) + uint64_t{row} * (SURFACE_WIDTH / 4);
    add_some(at, {mean.x, mean.y, mean.z, size.x});
    add_some(at + 1, {size.y, size.z, q.w, q.x});
    add_some(at + 2, {q.y, q.z, d.d_opacity_logit, 0.0f});
}

// The lane's neighbour, and the sampled Gaussian, which is equal in all lanes.
struct Sample {
    DensityKernel own, other;
    float3 along;     // position of the sample along its Gaussian's axes
    float3 offset;    // of the sample from the neighbour's centre
    float3 whitened;  // offset in units of the neighbour's scales
    float density;    // of the neighbour at the sample
    bool is_neighbour;
};

// Compares the density with that of an ideal surface; returns the difference and adds the gradients.
template <uint32_t LANES>
__device__ inline float density_term(const Sample& s, uint32_t list_len, float d_density,
                                        DensityKernelGradient& d_own, DensityKernelGradient& d_other) {
    const float thick = s.is_neighbour ? thickness(s.other) : 0.0f;
    const float beta = surface_thickness(sum_of<LANES>(thick), list_len);
    const float distance = pick(s.along, s.own.thin);
    const float target = surface_density(distance, beta);
    const float difference = sum_of<LANES>(s.density) - target;
    const float slope = d_density * sign(difference);
    const float2 d_surface = surface_density_bwd(distance, beta, target, -slope);
    const float3 d_offset =
        density_bwd(s.other, s.offset, s.whitened, s.density, slope, d_other);
    d_other.d_mean_world = sub(d_other.d_mean_world, d_offset);
    add_to(d_other.d_log_scale, s.other.thin,
           surface_thickness_bwd(s.other, beta, list_len, d_surface.y));
    sample_bwd(s.own, s.along, sum_of<LANES>(d_offset), d_surface.x, d_own);
    return fabsf(difference);
}

// Compares the Gaussian's normal with its neighbours'; returns the squared difference and adds the gradients.
template <uint32_t LANES>
__device__ inline float normal_term(const Sample& s, float d_normal, DensityKernelGradient& d_own,
                                        DensityKernelGradient& d_other) {
    const float3 own = normal_of(s.own);
    float side;
    const float3 turned = aligned(normal_of(s.other), own, side);
    const float weight = normal_weight(s.other, s.offset, s.density);
    const float share = weight * normal_weight_factor(sum_of<LANES>(weight));
    const float3 difference = sub(own, sum_of<LANES>(scale(turned, share)));
    const float3 d_difference = scale(difference, 2.0f * d_normal);
    normal_bwd(s.own, d_difference, d_own);
    normal_bwd(s.other, scale(d_difference, -share * side), d_other);
    return dot(difference, difference);
}

// Depth map at the projection of a point.
struct DepthLookup {
    float3 point_cam;
    PixelQuad cell;
    float height;   // distance of the surface behind the point
    float2 slopes;  // of the depths, per px
};

// Looks up a point, given by its offset from the Gaussian's centre; false outside the image or behind the camera.
__device__ inline bool look_up(const ViewCamera& view, const float* __restrict__ depths,
                               const DensityKernel& kernel, float3 offset, DepthLookup& lookup) {
    const float3 mean_cam = camera_from_world(view, kernel.mean_world);
    lookup.point_cam = add(mean_cam, mul(camera_rotation(view), offset));
    float2 place;
    if (!place_px(view, lookup.point_cam, place)) return false;
    lookup.cell = cell(place, view.size);
    const uint64_t above = uint64_t{lookup.cell.low.y} * view.size[0];
    const uint64_t below = uint64_t{lookup.cell.high.y} * view.size[0];
    const float4 values = {depths[above + lookup.cell.low.x], depths[above + lookup.cell.high.x],
                           depths[below + lookup.cell.low.x], depths[below + lookup.cell.high.x]};
    lookup.height = between(lookup.cell, values, lookup.slopes) - lookup.point_cam.z;
    return true;
}

// Returns the world-space gradient of the point.
__device__ inline float3 lookup_bwd(const ViewCamera& view, const DepthLookup& lookup, float d_height) {
    const float2 d_place = {lookup.slopes.x * d_height, lookup.slopes.y * d_height};
    float3 d_point_cam = place_px_bwd(view, lookup.point_cam, d_place);
    d_point_cam.z -= d_height;
    return mul_transposed(camera_rotation(view), d_point_cam);
}

// Distance error of a sample and its gradients; zero outside the view.
struct DistanceError {
    float error;
    float beta;  // thickness of the surface that the neighbours form
    float d_found, d_beta, d_height;
};

// All lanes of the warp must call it.
template <uint32_t LANES>
__device__ inline DistanceError distance_error_of(const RegulariseArgs& a, const Sample& s,
                                                  const DepthLookup& lookup, bool shown) {
    const float thick = s.is_neighbour ? thickness(s.other) : 0.0f;
    const float beta = surface_thickness(sum_of<LANES>(thick), a.list_len);
    const float found = DISTANCE_DENSITY_FACTOR * sum_of<LANES>(s.density);
    if (!shown) return {0.0f, beta, 0.0f, 0.0f, 0.0f};
    const float predicted = distance(found, beta);
    const float2 d = distance_error_bwd(predicted, lookup.height, a.sdf_unit, a.d_sdf);
    const float2 d_distance = distance_bwd(found, beta, d.x);
    return {distance_error(predicted, lookup.height, a.sdf_unit), beta,
            DISTANCE_DENSITY_FACTOR * d_distance.x, d_distance.y, d.y};
}

// Compares the distances from the surface; returns the difference and adds the gradients.
template <uint32_t LANES>
__device__ inline float distance_term(const RegulariseArgs& a, const Sample& s,
                                      DensityKernelGradient& d_own, DensityKernelGradient& d_other) {
    DepthLookup lookup;
    const bool shown = look_up(a.camera, a.depths, s.own, sample_offset(s.own, s.along), lookup);
    const DistanceError e = distance_error_of<LANES>(a, s, lookup, shown);
    const float3 d_offset =
        density_bwd(s.other, s.offset, s.whitened, s.density, e.d_found, d_other);
    d_other.d_mean_world = sub(d_other.d_mean_world, d_offset);
    add_to(d_other.d_log_scale, s.other.thin,
           surface_thickness_bwd(s.other, e.beta, a.list_len, e.d_beta));
    float3 d_place = sum_of<LANES>(d_offset);
    if (shown) d_place = add(d_place, lookup_bwd(a.camera, lookup, e.d_height));
    sample_bwd(s.own, s.along, d_place, 0.0f, d_own);
    return e.error;
}

// Adds the gradient of the four depths around a sample; one lane per pixel.
template <uint32_t LANES>
__device__ inline void depth_term(const RegulariseArgs& a, const Sample& s, bool counts) {
    DepthLookup lookup;
    const bool shown = look_up(a.camera, a.depths, s.own, sample_offset(s.own, s.along), lookup);
    const float d_height = distance_error_of<LANES>(a, s, lookup, shown).d_height;
    const uint32_t lane = threadIdx.x % LANES;
    if (!counts || !shown || lane >= 4) return;
    const float d_depth = cell_weight(lookup.cell, lane) * d_height;
    if (d_depth == 0.0f) return;
    const uint2 pixel = cell_pixel(lookup.cell, lane);
    float4* const d_surface = reinterpret_cast<float4*>(a.d_surface);
    add_quad(d_surface + uint64_t{pixel.y} * a.camera.size[0] + pixel.x,
             {d_depth, 0.0f, 0.0f, d_depth * __uint_as_float(*a.farthest)});
}

// Terms of the samples: density and normals; with distances; or the gradient of the view's depths.
enum class Taken { PLAIN, SHOWN, DEPTHS };

template <uint32_t LANES, Taken TAKEN>
__device__ inline void take_samples(const RegulariseArgs& a) {
    constexpr uint32_t AT_ONCE = SURFACE_BLOCK / LANES;
    constexpr bool shown = TAKEN == Taken::SHOWN;
    __shared__ float of_warp[shown ? 3 : 2][SURFACE_BLOCK / WARP];
    // Uniform over all threads.
    const uint32_t seen = TAKEN == Taken::PLAIN ? a.seen : *a.total;
    if (seen == 0) return;
    const float* __restrict__ geometry = a.geometry;
    const uint32_t* __restrict__ near = a.near;
    const uint32_t lane = threadIdx.x % LANES;
    float density_error = 0.0f, normal_error = 0.0f, distance_error = 0.0f;
    // All threads of a block loop equally often; lanes after the last sample add nothing.
    for (uint64_t first = uint64_t{blockIdx.x} * AT_ONCE; first < a.samples;
         first += uint64_t{gridDim.x} * AT_ONCE) {
        const uint64_t sample = first + threadIdx.x / LANES;
        const bool counts = sample < a.samples;
        const uint32_t row = a.rows[__umul64hi(random_bits(a.key, 2 * sample), seen)];
        Sample s;
        s.is_neighbour = lane < a.list_len;
        const uint32_t other = s.is_neighbour ? near[uint64_t{row} * a.list_len + lane] : row;
        const uint64_t own_at = lane_block(row, GEOMETRY_WIDTH);
        const uint64_t other_at = lane_block(other, GEOMETRY_WIDTH);
        const Quat own_quat = load_quat(geometry, own_at);
        const Quat other_quat = load_quat(geometry, other_at);
        s.own = load_density_kernel(geometry, own_at, own_quat);
        s.other = load_density_kernel(geometry, other_at, other_quat);
        s.along = sample_along(s.own, standard_normals(a.normal_key, sample));
        // Relative to the Gaussian's own centre: the absolute position would lose digits.
        const float3 between = sub(s.own.mean_world, s.other.mean_world);
        s.offset = add(sample_offset(s.own, s.along), between);
        const float dense = density(s.other, s.offset, s.whitened);
        s.density = s.is_neighbour ? dense : 0.0f;

        if constexpr (TAKEN == Taken::DEPTHS) {
            depth_term<LANES>(a, s, counts);
            continue;
        }
        DensityKernelGradient d_own = {}, d_other = {};
        float of_density = 0.0f, of_normal = 0.0f, of_distance = 0.0f;
        if (a.d_density != 0.0f) {
            of_density = density_term<LANES>(s, a.list_len, a.d_density, d_own, d_other);
        }
        if (a.d_normal != 0.0f) {
            of_normal = normal_term<LANES>(s, a.d_normal, d_own, d_other);
        }
        if constexpr (shown) of_distance = distance_term<LANES>(a, s, d_own, d_other);
        if (!counts) continue;
        if (s.is_neighbour) add_row(a.d_geometry, other, d_other, other_quat);
        if (lane == 0) {
            add_row(a.d_geometry, row, d_own, own_quat);
            density_error += of_density;
            normal_error += of_normal;
            distance_error += of_distance;
        }
    }
    if constexpr (TAKEN == Taken::DEPTHS) return;
    if (a.d_density != 0.0f) add_to_term(density_error, of_warp[0], &a.sums->density);
    if (a.d_normal != 0.0f) add_to_term(normal_error, of_warp[1], &a.sums->normal);
    if constexpr (shown) add_to_term(distance_error, of_warp[2], &a.sums->sdf);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    regularise_16(const __grid_constant__ RegulariseArgs a) {
    take_samples<16, Taken::PLAIN>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    regularise_32(const __grid_constant__ RegulariseArgs a) {
    take_samples<32, Taken::PLAIN>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    regularise_shown_16(const __grid_constant__ RegulariseArgs a) {
    take_samples<16, Taken::SHOWN>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    regularise_shown_32(const __grid_constant__ RegulariseArgs a) {
    take_samples<32, Taken::SHOWN>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    compare_shown_16(const __grid_constant__ RegulariseArgs a) {
    take_samples<16, Taken::DEPTHS>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    compare_shown_32(const __grid_constant__ RegulariseArgs a) {
    take_samples<32, Taken::DEPTHS>(a);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    find_farthest(const __grid_constant__ ShowArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    // Depths are not negative: their bits are ordered like the depths.
    const float depth = i < a.visible ? splats[uint64_t{i} * 3 + 1].w : 0.0f;
    const int farthest = warp_max(__float_as_int(depth));
    // The value may be outdated, but is never too large.
    if (threadIdx.x % WARP == 0 && static_cast<uint32_t>(farthest) > *a.farthest) {
        atomicMax(a.farthest, static_cast<uint32_t>(farthest));
    }
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    show_depths(const __grid_constant__ ShowArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.pixels) return;
    const float4 map = reinterpret_cast<const float4*>(a.surface)[i];
    a.depths[i] = map.x + (1.0f - map.w) * __uint_as_float(*a.farthest);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    count_near(const __grid_constant__ NearArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    bool is_near = false;
    if (row < a.n && a.splat_from_gaussian[row] != UNSEEN) {
        const uint64_t at = lane_block(row, GEOMETRY_WIDTH);
        const DensityKernel kernel = load_density_kernel(a.geometry, at, load_quat(a.geometry, at));
        const float* const centre = a.camera.centre_world;
        const float deviation = deviation_towards(kernel, {centre[0], centre[1], centre[2]});
        DepthLookup lookup;
        is_near = look_up(a.camera, a.depths, kernel, {0.0f, 0.0f, 0.0f}, lookup) &&
                  is_near_surface(lookup.height, deviation);
    }
    const uint32_t mask = __ballot_sync(FULL_WARP, is_near);
    if (row % WARP != 0 || row >= a.n) return;
    a.masks[row / WARP] = mask;
    a.counts[row / WARP] = __popc(mask);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    list_near(const __grid_constant__ NearArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const uint32_t mask = a.masks[row / WARP], first = a.firsts[row / WARP];
    if (row == a.n - 1) *a.total = first + __popc(mask);
    if ((mask >> (row % WARP) & 1) == 0) return;
    const uint32_t place = first + __popc(mask & lanes_below());
    if (place < a.seen) a.rows[place] = row;
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    regularise_entropy(const __grid_constant__ EntropyArgs a) {
    __shared__ float of_warp[SURFACE_BLOCK / WARP];
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    float value = 0.0f;
    if (i < a.seen) {
        const uint32_t row = a.rows[i];
        const float logit = a.geometry[lane_block(row, GEOMETRY_WIDTH) + component(OPACITY_LOGIT)];
        value = entropy(logit);
        a.d_geometry[uint64_t{row} * SURFACE_WIDTH + OPACITY_LOGIT] +=
            entropy_bwd(logit, a.d_entropy);
    }
    add_to_term(value, of_warp, &a.sums->entropy);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    count_seen(const __grid_constant__ SeenArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const bool seen = row < a.n && a.splat_from_gaussian[row] != UNSEEN;
    const uint32_t mask = __ballot_sync(FULL_WARP, seen);
    if (row % WARP == 0 && row < a.n) a.counts[row / WARP] = __popc(mask);
}

extern "C" __global__ void __launch_bounds__(SURFACE_BLOCK)
    list_seen(const __grid_constant__ SeenArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    const bool seen = row < a.n && a.splat_from_gaussian[row] != UNSEEN;
    const uint32_t mask = __ballot_sync(FULL_WARP, seen);
    if (!seen) return;
    const uint32_t place = a.firsts[row / WARP] + __popc(mask & lanes_below());
    if (place < a.seen) a.rows[place] = row;
}
