// rays: the visible Gaussians along rays: median depths of pixels and their gradients, and transmittances to points.
//
// `ray_gaussians` and `ray_gaussians_bwd`: the visible Gaussians in a form for ray intersection, and its gradients. One
// thread per Gaussian.
//
// `median_depths`: one block per listed tile, one thread per pixel. The block visits the tile's list several times and
// stages the Gaussians for all pixels: once to find the search interval, then to evaluate the transmittance at
// MEDIAN_ABSCISSAE depths per round until the interval is narrow, then for Newton's steps. It ends when no pixel is
// searching. `median_depths_bwd`: the same blocks visit their lists twice: for the slope of the transmittance at the
// median, and for the gradients of each Gaussian, which a warp sums over its pixels.
//
// `transmittances`: one thread per point, over the list of the tile that the point projects to. Points are in the order
// of their Gaussians, which are in Morton order, so that the lists of a warp are nearly equal. A thread stops when
// hardly any light is left, which is soon for points inside objects.
//
// Shapes: geometry [lane blocks, 11, 32], rays and d_rays [visible, 16], d_geometry [gaussians, 12],
// splat_from_instance [instances], ranges [tiles], depths and d_depths [h, w], places [places, 3],
// transmittances [places].

#include "field.cuh"
#include "layout.cuh"
#include "primitive.cuh"
#include "splat.cuh"
#include "tiles.cuh"

// Twin of math/transmittance.rs: transmittance of Gaussians along a ray. Same names, same order of arguments; see Rust
// for the equations.

// A Gaussian in a form for ray intersection, in four 16-byte quads. The first three hold a row of the whitening and a
// coordinate of the centre each, the last the opacity.
struct RayGaussian {
    float4 x, y, z;
    float opacity;
};

// Infinitely thin Gaussians still have a direction (SCALE_MIN in math/field.rs).
constexpr float RAY_SCALE_MIN = 1e-8f;

constexpr uint32_t RAY_QUADS = RAY_WIDTH / 4;
static_assert(RAY_QUADS == 4, "what a RayGaussian is stored in");

__device__ inline RayGaussian load_ray(const float4* quads) {
    return {quads[0], quads[1], quads[2], quads[3].x};
}

__device__ inline RayGaussian ray_gaussian(const ViewCamera& view, const Shape& shape,
                                           float opacity_logit) {
    const float3 mean_cam = camera_from_world(view, shape.mean_world);
    const Mat3 axes = transpose(mat_mul(camera_rotation(view), rotation(shape.quat)));
    float kept;
    const float3 wide = smoothed(
        float3{expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)},
        shape.smoothing, kept);
    const float3 a = scale(axes.row[0], 1.0f / fmaxf(wide.x, RAY_SCALE_MIN));
    const float3 b = scale(axes.row[1], 1.0f / fmaxf(wide.y, RAY_SCALE_MIN));
    const float3 c = scale(axes.row[2], 1.0f / fmaxf(wide.z, RAY_SCALE_MIN));
    return {{a.x, a.y, a.z, mean_cam.x},
            {b.x, b.y, b.z, mean_cam.y},
            {c.x, c.y, c.z, mean_cam.z},
            sigmoid(opacity_logit) * kept};
}

// A Gaussian along one ray.
struct OnRay {
    float depth, sharpness, peak;
};

__device__ inline float3 whitened(const RayGaussian& g, float3 v) {
    return {g.x.x * v.x + g.x.y * v.y + g.x.z * v.z, g.y.x * v.x + g.y.y * v.y + g.y.z * v.z,
            g.z.x * v.x + g.z.y * v.y + g.z.z * v.z};
}

__device__ inline OnRay on_ray(const RayGaussian& g, float2 slopes) {
    const float depth = g.z.w;
    const float3 from = whitened(g, {slopes.x * depth - g.x.w, slopes.y * depth - g.y.w, 0.0f});
    const float3 along = whitened(g, {slopes.x, slopes.y, 1.0f});
    const float sharpness = dot(along, along);
    const float behind = -dot(from, along) / sharpness;
    const float3 nearest = add(from, scale(along, behind));
    return {depth + behind, sharpness, g.opacity * __expf(-0.5f * dot(nearest, nearest))};
}

__device__ inline bool is_met(const OnRay& r) { return r.peak >= ALPHA_MIN; }

__device__ inline float passed(const OnRay& r) { return 1.0f - fminf(r.peak, ALPHA_MAX); }

__device__ inline float opacity_at(const OnRay& r, float depth) {
    const float offset = depth - r.depth;
    return r.peak * __expf(-0.5f * r.sharpness * offset * offset);
}

__device__ inline float squared_transmittance(const OnRay& r, float depth) {
    const float here = 1.0f - fminf(opacity_at(r, depth), ALPHA_MAX);
    const float all = passed(r);
    return depth <= r.depth ? here : all * __fdividef(all, here);
}

__device__ inline float log_slope(const OnRay& r, float depth) {
    const float opacity = opacity_at(r, depth);
    if (opacity >= ALPHA_MAX) return 0.0f;
    return -0.5f * opacity * r.sharpness * fabsf(depth - r.depth) / (1.0f - opacity);
}

// Returns the derivatives of the log-transmittance at a depth by the opacity there (x) and by that at the peak (y); 0
// for clamped opacities.
__device__ inline float2 log_transmittance_bwd(const OnRay& r, float depth) {
    const float opacity = opacity_at(r, depth);
    const float here = opacity < ALPHA_MAX ? 0.5f / (1.0f - opacity) : 0.0f;
    if (depth <= r.depth) return {-here, 0.0f};
    return {here, r.peak < ALPHA_MAX ? -1.0f / (1.0f - r.peak) : 0.0f};
}

// Gradients of a RayGaussian, in its layout.
struct RayGaussianGradient {
    float4 x, y, z;
    float opacity;
};

// Adds the gradients through the opacity at one of the two depths.
__device__ inline void falloff_bwd(const RayGaussian& g, float2 slopes, float depth, float d_opacity,
                                   RayGaussianGradient& sums) {
    const float behind = depth - g.z.w;
    const float3 offset = {slopes.x * g.z.w - g.x.w + slopes.x * behind,
                           slopes.y * g.z.w - g.y.w + slopes.y * behind, behind};
    const float3 v = whitened(g, offset);
    const float falloff = __expf(-0.5f * dot(v, v));
    sums.opacity += d_opacity * falloff;
    const float3 d = scale(v, d_opacity * g.opacity * falloff);
    sums.x.x -= d.x * offset.x;
    sums.x.y -= d.x * offset.y;
    sums.x.z -= d.x * offset.z;
    sums.y.x -= d.y * offset.x;
    sums.y.y -= d.y * offset.y;
    sums.y.z -= d.y * offset.z;
    sums.z.x -= d.z * offset.x;
    sums.z.y -= d.z * offset.y;
    sums.z.z -= d.z * offset.z;
    sums.x.w += g.x.x * d.x + g.y.x * d.y + g.z.x * d.z;
    sums.y.w += g.x.y * d.x + g.y.y * d.y + g.z.y * d.z;
    sums.z.w += g.x.z * d.x + g.y.z * d.y + g.z.z * d.z;
}

// Returns the gradients of the log-transmittance at a depth, times `d_log`.
__device__ inline RayGaussianGradient log_transmittance_bwd(const RayGaussian& g, const OnRay& met,
                                                            float2 slopes, float depth, float d_log) {
    RayGaussianGradient sums = {};
    const float2 by_opacity = log_transmittance_bwd(met, depth);
    falloff_bwd(g, slopes, depth, d_log * by_opacity.x, sums);
    falloff_bwd(g, slopes, met.depth, d_log * by_opacity.y, sums);
    return sums;
}

// Gradients of the raw parameters.
struct RayGradient {
    float3 d_mean, d_log_scale;
    Quat d_quat;
    float d_opacity_logit;
};

// Twin of `RayGaussian::new_bwd`.
__device__ inline RayGradient ray_gaussian_bwd(const ViewCamera& view, const Shape& shape,
                                               float opacity_logit, const RayGaussianGradient& d) {
    const RayGaussian g = ray_gaussian(view, shape, opacity_logit);
    float kept;
    const float3 wide = smoothed(
        float3{expf(shape.log_scale.x), expf(shape.log_scale.y), expf(shape.log_scale.z)},
        shape.smoothing, kept);
    const float3 d_x = {d.x.x, d.x.y, d.x.z}, d_y = {d.y.x, d.y.y, d.y.z}, d_z = {d.z.x, d.z.y, d.z.z};
    // A scale below the minimum has no gradient.
    const float3 d_log_wide = {
        wide.x > RAY_SCALE_MIN ? -dot(float3{g.x.x, g.x.y, g.x.z}, d_x) : 0.0f,
        wide.y > RAY_SCALE_MIN ? -dot(float3{g.y.x, g.y.y, g.y.z}, d_y) : 0.0f,
        wide.z > RAY_SCALE_MIN ? -dot(float3{g.z.x, g.z.y, g.z.z}, d_z) : 0.0f};
    const float opacity = sigmoid(opacity_logit);
    const Mat3 over = {scale(d_x, 1.0f / fmaxf(wide.x, RAY_SCALE_MIN)),
                       scale(d_y, 1.0f / fmaxf(wide.y, RAY_SCALE_MIN)),
                       scale(d_z, 1.0f / fmaxf(wide.z, RAY_SCALE_MIN))};
    const Mat3 turn = camera_rotation(view);
    RayGradient gradient;
    gradient.d_mean = mul_transposed(turn, float3{d.x.w, d.y.w, d.z.w});
    gradient.d_log_scale = smoothed_bwd(wide, shape.smoothing, d_log_wide, d.opacity * opacity * kept);
    gradient.d_quat = rotation_bwd(shape.quat, mat_mul(transpose(turn), transpose(over)));
    gradient.d_opacity_logit = sigmoid_bwd(opacity, d.opacity * kept);
    return gradient;
}

__device__ inline Shape shape_of(const float* geometry, const float* filter_3d, uint32_t gaussian,
                                 uint64_t at) {
    return {load_triple(geometry, at, MEAN), load_triple(geometry, at, LOG_SCALE),
            {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
             geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]},
            filter_3d == nullptr ? 0.0f : filter_3d[gaussian]};
}

extern "C" __global__ void __launch_bounds__(RAYS_BLOCK)
    ray_gaussians(const __grid_constant__ RaysArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = shape_of(geometry, a.filter_3d, gaussian, at);
    const RayGaussian ray = ray_gaussian(a.camera, shape, geometry[at + component(OPACITY_LOGIT)]);
    float4* const quads = reinterpret_cast<float4*>(a.rays) + uint64_t{splat_index} * RAY_QUADS;
    quads[0] = ray.x;
    quads[1] = ray.y;
    quads[2] = ray.z;
    quads[3] = {ray.opacity, 0.0f, 0.0f, 0.0f};
}

extern "C" __global__ void __launch_bounds__(RAYS_BLOCK)
    ray_gaussians_bwd(const __grid_constant__ RaysBwdArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = shape_of(geometry, a.filter_3d, gaussian, at);
    const float4* const quads =
        reinterpret_cast<const float4*>(a.d_rays) + uint64_t{splat_index} * RAY_QUADS;
    const RayGaussianGradient d = {quads[0], quads[1], quads[2], quads[3].x};
    const RayGradient of = ray_gaussian_bwd(a.camera, shape, geometry[at + component(OPACITY_LOGIT)], d);
    float4* const row =
        reinterpret_cast<float4*>(a.d_geometry) + uint64_t{gaussian} * (SURFACE_WIDTH / 4);
    const float4 first = row[0], second = row[1], third = row[2];
    row[0] = {first.x + of.d_mean.x, first.y + of.d_mean.y, first.z + of.d_mean.z,
              first.w + of.d_log_scale.x};
    row[1] = {second.x + of.d_log_scale.y, second.y + of.d_log_scale.z, second.z + of.d_quat.w,
              second.w + of.d_quat.x};
    row[2] = {third.x + of.d_quat.y, third.y + of.d_quat.z, third.z + of.d_opacity_logit, third.w};
}

static_assert(MEDIAN_BLOCK == WARP_TILES * WARP, "one thread per pixel of a tile");

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
    const WarpTile warp_tile = warp_tile_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP);
    const float2 slopes = {(warp_tile.centre_px.x - a.centre_px[0]) / a.focal_px[0],
                           (warp_tile.centre_px.y - a.centre_px[1]) / a.focal_px[1]};

    Interval interval = first_interval(a, range, staged, slopes);
    uint32_t narrowings = 0;
    bool searches = interval.exists && warp_tile.inside;
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

    const bool found = interval.exists && warp_tile.inside && narrowings == MEDIAN_NARROWINGS;
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
    if (!warp_tile.inside) return;
    const bool counts = found && depth > a.near && -slope * depth >= MEDIAN_SLOPE_MIN;
    a.depths[uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x] = counts ? depth : 0.0f;
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
    const WarpTile warp_tile = warp_tile_of(a.size, a.tiles_wide, tile, threadIdx.x / WARP);
    const float2 slopes = {(warp_tile.centre_px.x - a.centre_px[0]) / a.focal_px[0],
                           (warp_tile.centre_px.y - a.centre_px[1]) / a.focal_px[1]};
    float depth = 0.0f, d_depth = 0.0f;
    if (warp_tile.inside) {
        const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
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

extern "C" __global__ void __launch_bounds__(TRANSMITTANCE_BLOCK)
    transmittances(const __grid_constant__ TransmittanceArgs a) {
    const float4* __restrict__ rays = reinterpret_cast<const float4*>(a.rays);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= a.count) return;
    const float* const own = a.places + uint64_t{index} * 3;
    const float3 place = camera_from_world(a.camera, float3{own[0], own[1], own[2]});
    float2 at_px;
    if (!place_px(a.camera, place, at_px)) {
        a.transmittances[index] = NOT_SEEN;
        return;
    }
    const uint32_t column = min(static_cast<uint32_t>(at_px.x), a.camera.size[0] - 1) / TILE;
    const uint32_t row = min(static_cast<uint32_t>(at_px.y), a.camera.size[1] - 1) / TILE;
    if (row < a.first_row || row >= a.end_row) return;

    constexpr float DARK = TRANSMITTANCE_MIN * TRANSMITTANCE_MIN;
    const TileRange range = a.ranges[row * a.camera.tiles[0] + column];
    const float2 slopes = {place.x / place.z, place.y / place.z};
    float squared = 1.0f;
    for (uint32_t instance = range.start; instance < range.end && squared >= DARK; ++instance) {
        const uint64_t splat_index = splat_from_instance[instance];
        const OnRay met = on_ray(load_ray(rays + splat_index * RAY_QUADS), slopes);
        if (is_met(met)) squared *= squared_transmittance(met, place.z);
    }
    a.transmittances[index] = squared >= DARK ? sqrtf(squared) : 0.0f;
}
