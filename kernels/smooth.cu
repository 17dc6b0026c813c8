// smooth: the 3D filter of Mip-Splatting (Yu et al. 2024, section 4.1) from the training views, and opacity resets
// through it. One thread per Gaussian, which loops over the views; a few views at a time are in shared memory.
// Shapes: geometry [lane blocks, 11, 32], views [views], filter_3d [n].

#include "layout.cuh"
#include "splat.cuh"

// True if a view samples a coordinate: inside the image or within a margin that is a share of the side.
__device__ inline bool within_margin(float at, float side) {
    const float margin = SAMPLED_MARGIN * side;
    return at >= -margin && at <= side + margin;
}

// Finds the depth of each Gaussian in the nearest view that samples it; 0 if none. `farthest` becomes the maximum, as
// bits, which are ordered like the depths.
extern "C" __global__ void __launch_bounds__(SMOOTH_BLOCK)
    smooth_nearest(const __grid_constant__ SmoothArgs a) {
    __shared__ SmoothView views[SMOOTH_VIEWS];
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    float3 mean = {0.0f, 0.0f, 0.0f};
    if (row < a.n) {
        const uint64_t at = lane_block(row, GEOMETRY_WIDTH);
        mean = {a.geometry[at + component(MEAN)], a.geometry[at + component(MEAN + 1)],
                a.geometry[at + component(MEAN + 2)]};
    }
    float nearest = INFINITY;
    for (uint32_t first = 0; first < a.views_len; first += SMOOTH_VIEWS) {
        const uint32_t count = min(SMOOTH_VIEWS, a.views_len - first);
        __syncthreads();  // all threads have read the previous views
        if (threadIdx.x < count) views[threadIdx.x] = a.views[first + threadIdx.x];
        __syncthreads();  // the views are staged
        for (uint32_t v = 0; v < count; ++v) {
            const SmoothView& view = views[v];
            const float* r = view.rotation;
            const float x = r[0] * mean.x + r[1] * mean.y + r[2] * mean.z + view.translation[0];
            const float y = r[3] * mean.x + r[4] * mean.y + r[5] * mean.z + view.translation[1];
            const float z = r[6] * mean.x + r[7] * mean.y + r[8] * mean.z + view.translation[2];
            if (z > a.sampled_from &&
                within_margin(x / z * view.focal_px[0] + view.centre_px[0], view.size[0]) &&
                within_margin(y / z * view.focal_px[1] + view.centre_px[1], view.size[1])) {
                nearest = fminf(nearest, z);
            }
        }
    }
    // An infinite depth does not count.
    const float depth = row < a.n && isfinite(nearest) ? nearest : 0.0f;
    if (row < a.n) a.filter_3d[row] = depth;
    const int greatest = warp_max(__float_as_int(depth));
    if (threadIdx.x % WARP == 0 && greatest > 0) {
        atomicMax(a.farthest, static_cast<uint32_t>(greatest));
    }
}

// Converts depths to standard deviations. Gaussians that no view samples get the farthest depth.
extern "C" __global__ void __launch_bounds__(SMOOTH_BLOCK)
    smooth_spread(const __grid_constant__ SmoothArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const float depth = a.filter_3d[row];
    a.filter_3d[row] = (depth > 0.0f ? depth : __uint_as_float(*a.farthest)) * a.smoothing_per_depth;
}

// Lowers filtered opacities and zeros their moments.
extern "C" __global__ void __launch_bounds__(SMOOTH_BLOCK)
    reset_smoothed_opacity(const __grid_constant__ ResetSmoothedArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n) return;
    const uint64_t gaussian = lane_block(row, GEOMETRY_WIDTH);
    const uint64_t at = gaussian + component(OPACITY_LOGIT);
    const float3 scales = {expf(a.geometry[gaussian + component(LOG_SCALE)]),
                           expf(a.geometry[gaussian + component(LOG_SCALE + 1)]),
                           expf(a.geometry[gaussian + component(LOG_SCALE + 2)])};
    float kept;
    smoothed(scales, a.filter_3d[row], kept);
    a.geometry[at] = lowered_logit(a.geometry[at], kept, a.ceiling);
    a.geometry_second[at] = 0.0f;
    a.geometry_first[lane_block(row, a.first_width) + component(a.first_width - 1)] = 0;
}
