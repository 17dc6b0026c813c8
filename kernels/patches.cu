// patches: photometric difference between patches and their projections into another view's photograph, by median
// depths and drawn normals, and its gradients.
//
// `compare_patches`: one warp per patch; each lane has one or two pixels. Only the middle pixel of a patch has
// gradients, so that only the block's sum is added atomically. All lanes of a warp leave a patch together.
//
// Shapes: surface and d_surface [h, w, 4], medians, d_medians and mask [h, w], target [h, w, 3], other
// [its h, its w, 3], other_mask [its h, its w].

#include "normals.cuh"
#include "patches.cuh"

static_assert(PATCHES_BLOCK % WARP == 0, "whole warps");

// Returns the offset of a patch's pixel from its middle, in slopes.
__device__ inline float2 away(const PatchesArgs& a, uint32_t place) {
    const float x = static_cast<float>(place % PATCH_SIDE) - static_cast<float>(PATCH_REACH);
    const float y = static_cast<float>(place / PATCH_SIDE) - static_cast<float>(PATCH_REACH);
    return {x / a.focal_px[0], y / a.focal_px[1]};
}

__device__ inline OtherCamera other_camera(const PatchesArgs& a) {
    const float* r = a.rotation;
    return {{float3{r[0], r[1], r[2]}, float3{r[3], r[4], r[5]}, float3{r[6], r[7], r[8]}},
            {a.translation[0], a.translation[1], a.translation[2]},
            {a.other_focal_px[0], a.other_focal_px[1]},
            {a.other_centre_px[0], a.other_centre_px[1]}};
}

// Adds the gradients of a pixel from those of its plane.
__device__ inline void add_gradients(const PatchesArgs& a, uint64_t pixel, float2 xy, float opacity,
                                     const PatchPlaneGradient& d_plane) {
    const float2 d = blended_normal_bwd(xy, scale(d_plane.d_normal, a.d_cost / opacity));
    float4* const d_map = reinterpret_cast<float4*>(a.d_surface) + pixel;
    const float4 before = *d_map;
    // The opacity is 1 less the transmittance.
    *d_map = {before.x, before.y + d.x, before.z + d.y, before.w + d.x * xy.x + d.y * xy.y};
    a.d_medians[pixel] += d_plane.d_depth * a.d_cost;
}

// Returns the loss of the patch around a pixel. All lanes of a warp must take part.
__device__ inline float compare_patch(const PatchesArgs& a, uint32_t x, uint32_t y) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t count = (PATCH_PIXELS - lane + WARP - 1) / WARP;
    const uint64_t pixel = uint64_t{y} * a.size[0] + x;
    const float4 map = reinterpret_cast<const float4*>(a.surface)[pixel];
    const float depth = a.medians[pixel];
    const bool inside = x >= PATCH_REACH && y >= PATCH_REACH && x + PATCH_REACH < a.size[0] &&
                        y + PATCH_REACH < a.size[1];
    if (!inside || map.w < OPAQUE_MIN || !(depth > 0.0f)) return 0.0f;
    const float2 xy = {map.y / map.w, map.z / map.w};
    const float2 slopes = {(static_cast<float>(x) + 0.5f - a.centre_px[0]) / a.focal_px[0],
                           (static_cast<float>(y) + 0.5f - a.centre_px[1]) / a.focal_px[1]};
    const PatchPlane plane = {blended_normal(xy), depth, slopes};
    if (!faces(plane)) return 0.0f;
    const float2 tilted = tilt(plane);
    const OtherCamera camera = other_camera(a);
    const GreyPhoto own = {a.target, a.mask, static_cast<int>(a.size[0]), static_cast<int>(a.size[1])};
    const GreyPhoto other = {a.other, a.other_mask, static_cast<int>(a.other_size[0]),
                             static_cast<int>(a.other_size[1])};
    float patch[OF_LANE] = {}, found[OF_LANE] = {}, of_depth[OF_LANE] = {};
    bool exists = true;
#pragma unroll
    for (uint32_t i = 0; i < OF_LANE; ++i) {
        if (i >= count || !exists) continue;
        const uint32_t at = lane + i * WARP;
        const uint32_t column = x + at % PATCH_SIDE - PATCH_REACH, row = y + at / PATCH_SIDE - PATCH_REACH;
        patch[i] = grey(own, static_cast<int>(column), static_cast<int>(row), exists);
        const float2 from_middle = away(a, at);
        const float inverse = inverse_depth(plane, tilted, from_middle);
        const OtherPlace seen =
            place(camera, {slopes.x + from_middle.x, slopes.y + from_middle.y}, inverse);
        const GreySample sample = bilinear(other, seen.px);
        exists = exists && inverse > 0.0f && seen.depth_ratio > 0.0f && sample.exists;
        found[i] = sample.value;
        of_depth[i] = place_bwd(camera, seen, sample.slope);
    }
    if (!__all_sync(FULL_WARP, exists)) return 0.0f;
    const Correlation agreement = correlation(patch, found, count);
    if (agreement.contrast < CONTRAST_MIN) return 0.0f;
    if (agreement.ncc < AGREEMENT_MIN) return 1.0f - AGREEMENT_MIN;
    float d_sum = 0.0f;
    float2 d_moment = {0.0f, 0.0f};
#pragma unroll
    for (uint32_t i = 0; i < OF_LANE; ++i) {
        if (i >= count) continue;
        const float d = -ncc_bwd(agreement, patch[i], found[i]) * of_depth[i];
        const float2 from_middle = away(a, lane + i * WARP);
        d_sum += d;
        d_moment.x += d * from_middle.x;
        d_moment.y += d * from_middle.y;
    }
    d_sum = warp_sum(d_sum);
    d_moment = {warp_sum(d_moment.x), warp_sum(d_moment.y)};
    if (lane == 0) {
        add_gradients(a, pixel, xy, map.w, inverse_depth_bwd(plane, tilted, d_sum, d_moment));
    }
    return 1.0f - agreement.ncc;
}

extern "C" __global__ void __launch_bounds__(PATCHES_BLOCK)
    compare_patches(const __grid_constant__ PatchesArgs a) {
    __shared__ float of_warp[PATCHES_BLOCK / WARP];
    const uint64_t patch = (uint64_t{blockIdx.x} * PATCHES_BLOCK + threadIdx.x) / WARP;
    float cost = 0.0f;
    if (patch < uint64_t{a.patches[0]} * a.patches[1]) {
        const uint32_t column = static_cast<uint32_t>(patch % a.patches[0]);
        const uint32_t row = static_cast<uint32_t>(patch / a.patches[0]);
        cost = compare_patch(a, a.first_px[0] + column * PATCH_STRIDE, a.first_px[1] + row * PATCH_STRIDE);
    }
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = cost;
    __syncthreads();  // all warps have compared
    if (threadIdx.x != 0) return;
    double sum = 0.0;
    for (uint32_t warp = 0; warp < PATCHES_BLOCK / WARP; ++warp) sum += of_warp[warp];
    if (sum != 0.0) atomicAdd(a.sum, sum * a.shown);
}
