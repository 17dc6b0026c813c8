// median: the depth of each pixel at which half of the light is stopped, and its gradients.
//
// `median_depths`: one block per listed tile, one thread per pixel. The block visits the tile's list several times and
// stages the Gaussians for all pixels: once to find the search interval, then to evaluate the transmittance at
// MEDIAN_ABSCISSAE depths per round until the interval is narrow, then for Newton's steps. It ends when no pixel is
// searching. `median_depths_bwd`: the same blocks visit their lists twice: for the slope of the transmittance at the
// median, and for the gradients of each Gaussian, which a warp sums over its pixels.
//
// Shapes: rays and d_rays [visible, 16], splat_from_instance [instances], ranges [tiles], depths and
// d_depths [h, w].

#include "parts.cuh"
#include "quad.cuh"
#include "transmittance.cuh"

static_assert(MEDIAN_BLOCK == PARTS * WARP, "one thread per pixel of a tile");

// Number of Gaussians staged at a time: each thread loads a quarter of one.
constexpr uint32_t STAGED = MEDIAN_BLOCK / RAY_QUADS;

// Calls `visit` with each Gaussian of the list and its index. All threads of the block must take part.
template <class Args, class Visit>
__device__ inline void for_each_listed(const Args& a, TileRange range, float4* staged, Visit visit) {
    const float4* __restrict__ rays = reinterpret_cast<const float4*>(a.rays);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    for (uint32_t base = range.start; base < range.end; base += STAGED) {
        __syncthreads();  // all threads have read the previous Gaussians
        const uint32_t instance = base + threadIdx.x / RAY_QUADS;
        if (instance < range.end) {
            const uint64_t splat_index = splat_from_instance[instance];
            staged[threadIdx.x] = rays[splat_index * RAY_QUADS + threadIdx.x % RAY_QUADS];
        }
        __syncthreads();  // the Gaussians are there
        const uint32_t count = min(STAGED, range.end - base);
        for (uint32_t at = 0; at < count; ++at) visit(load_ray(staged + at * RAY_QUADS), base + at);
    }
}

// Calls `visit` with each Gaussian of the list that the thread's ray intersects. All threads of the block must take
// part.
template <class Args, class Visit>
__device__ inline void for_each_met(const Args& a, TileRange range, float4* staged, float2 slopes,
                                    Visit visit) {
    for_each_listed(a, range, staged, [&](const RayGaussian& gaussian, uint32_t) {
        const OnRay met = on_ray(gaussian, slopes);
        if (is_met(met)) visit(met);
    });
}

// Search interval of a pixel's median.
struct Interval {
    float low, high;
    bool exists;
};

__device__ inline Interval first_interval(const MedianArgs& a, TileRange range, float4* staged,
                                          float2 slopes) {
    float left = 1.0f;
    Interval interval = {0.0f, 0.0f, false};
    for_each_met(a, range, staged, slopes, [&](const OnRay& met) {
        const float before = left;
        left *= passed(met);
        if (!(left < MEDIAN_FROM && before >= MEDIAN_TO)) return;
        const float reach = MEDIAN_REACH * rsqrtf(met.sharpness);
        const float end = met.depth + reach;
        interval.low = interval.exists ? interval.low : met.depth - reach;
        interval.high = interval.exists ? fmaxf(interval.high, end) : end;
        interval.exists = true;
    });
    interval.exists = interval.exists && left < 0.5f;
    return interval;
}

// Shrinks the interval to the part where the transmittance falls to one half and returns true. If there is none, moves
// to an adjacent interval and returns false.
__device__ inline bool narrow(Interval& interval, const float (&squared)[MEDIAN_ABSCISSAE]) {
    const float low = interval.low, width = interval.high - low;
    const float step = width / (MEDIAN_ABSCISSAE - 1);
    uint32_t first = MEDIAN_ABSCISSAE;
#pragma unroll
    for (uint32_t index = MEDIAN_ABSCISSAE; index-- > 0;) {
        if (squared[index] <= 0.25f) first = index;
    }
    if (first == 0) {
        interval.high = low;
        interval.low = low - 2.0f * width;
        return false;
    }
    if (first == MEDIAN_ABSCISSAE) {
        interval.low = interval.high;
        interval.high += 2.0f * width;
        return false;
    }
    interval.low = fmaf(static_cast<float>(first - 1), step, low);
    interval.high = fmaf(static_cast<float>(first), step, low);
    return true;
}

extern "C" __global__ void __launch_bounds__(MEDIAN_BLOCK)
    median_depths(const __grid_constant__ MedianArgs a) {
    __shared__ float4 staged[MEDIAN_BLOCK];
    const uint32_t tile = a.first_tile + blockIdx.x;
    const TileRange range = a.ranges[tile];
    const Part part = part_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP);
    const float2 slopes = {(part.centre_px.x - a.centre_px[0]) / a.focal_px[0],
                           (part.centre_px.y - a.centre_px[1]) / a.focal_px[1]};

    Interval interval = first_interval(a, range, staged, slopes);
    uint32_t narrowings = 0;
    bool searches = interval.exists && part.inside;
    for (uint32_t round = 0; round < MEDIAN_NARROWINGS + MEDIAN_MOVES; ++round) {
        if (!__syncthreads_or(searches)) break;
        const float step = (interval.high - interval.low) / (MEDIAN_ABSCISSAE - 1);
        float squared[MEDIAN_ABSCISSAE];
#pragma unroll
        for (uint32_t index = 0; index < MEDIAN_ABSCISSAE; ++index) squared[index] = 1.0f;
        for_each_met(a, range, staged, slopes, [&](const OnRay& met) {
            if (!searches) return;
#pragma unroll
            for (uint32_t index = 0; index < MEDIAN_ABSCISSAE; ++index) {
                const float depth = fmaf(static_cast<float>(index), step, interval.low);
                squared[index] *= squared_transmittance(met, depth);
            }
        });
        if (searches && narrow(interval, squared)) ++narrowings;
        searches = searches && narrowings < MEDIAN_NARROWINGS;
    }

    const bool found = interval.exists && part.inside && narrowings == MEDIAN_NARROWINGS;
    float depth = 0.5f * (interval.low + interval.high);
    float slope = 0.0f;
    if (__syncthreads_or(found)) {
        for (uint32_t taken = 0; taken < MEDIAN_NEWTON_STEPS; ++taken) {
            float squared = 1.0f;
            slope = 0.0f;
            for_each_met(a, range, staged, slopes, [&](const OnRay& met) {
                squared *= squared_transmittance(met, depth);
                slope += log_slope(met, depth);
            });
            const float excess = 0.5f * logf(4.0f * squared);
            if (slope < 0.0f && isfinite(excess)) {
                depth = fminf(fmaxf(depth - excess / slope, interval.low), interval.high);
            }
        }
    }
    if (!part.inside) return;
    const bool counts = found && depth > a.near && -slope * depth >= MEDIAN_SLOPE_MIN;
    a.depths[uint64_t{part.pixel.y} * a.size[0] + part.pixel.x] = counts ? depth : 0.0f;
}

// Sums a Gaussian's gradients over the lanes and adds the sums to the global ones.
__device__ inline void add_gradient(float4* d_ray, const RayGaussianGradient& d) {
    const float4 x = {warp_sum(d.x.x), warp_sum(d.x.y), warp_sum(d.x.z), warp_sum(d.x.w)};
    const float4 y = {warp_sum(d.y.x), warp_sum(d.y.y), warp_sum(d.y.z), warp_sum(d.y.w)};
    const float4 z = {warp_sum(d.z.x), warp_sum(d.z.y), warp_sum(d.z.z), warp_sum(d.z.w)};
    const float opacity = warp_sum(d.opacity);
    if (threadIdx.x % WARP != 0) return;
    add_quad(d_ray, x);
    add_quad(d_ray + 1, y);
    add_quad(d_ray + 2, z);
    atomicAdd(&d_ray[3].x, opacity);
}

extern "C" __global__ void __launch_bounds__(MEDIAN_BLOCK)
    median_depths_bwd(const __grid_constant__ MedianBwdArgs a) {
    __shared__ float4 staged[MEDIAN_BLOCK];
    const uint32_t tile = a.first_tile + blockIdx.x;
    const TileRange range = a.ranges[tile];
    const Part part = part_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP);
    const float2 slopes = {(part.centre_px.x - a.centre_px[0]) / a.focal_px[0],
                           (part.centre_px.y - a.centre_px[1]) / a.focal_px[1]};
    float depth = 0.0f, d_depth = 0.0f;
    if (part.inside) {
        const uint64_t pixel = uint64_t{part.pixel.y} * a.size[0] + part.pixel.x;
        depth = a.depths[pixel];
        d_depth = a.d_depths[pixel];
    }
    if (!__syncthreads_or(d_depth != 0.0f)) return;

    float fall = 0.0f;
    for_each_met(a, range, staged, slopes, [&](const OnRay& met) { fall -= log_slope(met, depth); });
    const float d_log = fall * depth >= MEDIAN_FALL_MIN ? d_depth / fall : 0.0f;

    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    for_each_listed(a, range, staged, [&](const RayGaussian& gaussian, uint32_t instance) {
        const OnRay met = on_ray(gaussian, slopes);
        const bool counts = d_log != 0.0f && is_met(met);
        if (!__any_sync(FULL_WARP, counts)) return;
        RayGaussianGradient d = {};
        if (counts) d = log_transmittance_bwd(gaussian, met, slopes, depth, d_log);
        add_gradient(reinterpret_cast<float4*>(a.d_rays) +
                         uint64_t{splat_from_instance[instance]} * RAY_QUADS,
                     d);
    });
}
