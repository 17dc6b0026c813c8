// patches: photometric difference between patches and their projections into another view's photograph, by median
// depths and drawn normals, and its gradients.
//
// `compare_patches`: one warp per patch; each lane has one or two pixels. Only the middle pixel of a patch has
// gradients, so that only the block's sum is added atomically. All lanes of a warp leave a patch together.
//
// Shapes: surface and d_surface [h, w, 4], medians, d_medians and mask [h, w], target [h, w, 3], other
// [its h, its w, 3], other_mask [its h, its w].

#include "layout.cuh"
#include "linalg.cuh"
#include "normals.cuh"

// Twin of math/patches.rs: projection of a patch on a plane into another view's photograph, and its correlation. Same
// names, same order of arguments; see Rust for the equations. The lanes of a warp share the pixels of a patch, so sums
// over pixels are sums over the warp.

constexpr uint32_t PATCH_PIXELS = PATCH_SIDE * PATCH_SIDE;
static_assert(PATCH_SIDE == 2 * PATCH_REACH + 1, "the pixel is in the middle");

// Largest number of a patch's pixels per lane.
constexpr uint32_t OF_LANE = (PATCH_PIXELS + WARP - 1) / WARP;

// Another view's camera, relative to the camera of the patch.
struct OtherCamera {
    Mat3 rotation;
    float3 translation;
    float2 focal_px, centre_px;
};

// Projection of a point on a ray into the other camera.
struct OtherPlace {
    float2 px, slopes;
    float depth_ratio;  // if <= 0, the point is behind the camera and the other fields are invalid
};

__device__ inline OtherPlace place(const OtherCamera& camera, float2 ray, float inverse_depth) {
    const float3 seen =
        add(mul(camera.rotation, {ray.x, ray.y, 1.0f}), scale(camera.translation, inverse_depth));
    const float2 slopes = {seen.x / seen.z, seen.y / seen.z};
    return {{camera.focal_px.x * slopes.x + camera.centre_px.x,
             camera.focal_px.y * slopes.y + camera.centre_px.y},
            slopes,
            seen.z};
}

__device__ inline float place_bwd(const OtherCamera& camera, const OtherPlace& place, float2 d_px) {
    const float3 moved = camera.translation;
    const float along_x = d_px.x * camera.focal_px.x * (moved.x - place.slopes.x * moved.z);
    const float along_y = d_px.y * camera.focal_px.y * (moved.y - place.slopes.y * moved.z);
    return (along_x + along_y) / place.depth_ratio;
}

// The plane that a pixel shows.
struct PatchPlane {
    float3 normal;
    float depth;
    float2 slopes;
};

struct PatchPlaneGradient {
    float3 d_normal;
    float d_depth;
};

__device__ inline float3 ray(const PatchPlane& plane) {
    return {plane.slopes.x, plane.slopes.y, 1.0f};
}

__device__ inline bool faces(const PatchPlane& plane) {
    const float3 towards = ray(plane);
    return dot(plane.normal, towards) <= FACING_MAX * sqrtf(dot(towards, towards));
}

__device__ inline float2 tilt(const PatchPlane& plane) {
    const float along = dot(plane.normal, ray(plane));
    return {plane.normal.x / along, plane.normal.y / along};
}

__device__ inline float3 tilt_bwd(const PatchPlane& plane, float2 tilt, float2 d_tilt) {
    const float along = dot(plane.normal, ray(plane));
    const float d_along = -(tilt.x * d_tilt.x + tilt.y * d_tilt.y) / along;
    return add({d_tilt.x / along, d_tilt.y / along, 0.0f}, scale(ray(plane), d_along));
}

__device__ inline float inverse_depth(const PatchPlane& plane, float2 tilt, float2 from_middle) {
    return (1.0f + tilt.x * from_middle.x + tilt.y * from_middle.y) / plane.depth;
}

__device__ inline PatchPlaneGradient inverse_depth_bwd(const PatchPlane& plane, float2 tilt,
                                                       float d_sum, float2 d_moment) {
    const float2 d_tilt = {d_moment.x / plane.depth, d_moment.y / plane.depth};
    const float relative = d_sum + tilt.x * d_moment.x + tilt.y * d_moment.y;
    return {tilt_bwd(plane, tilt, d_tilt), -relative / (plane.depth * plane.depth)};
}

// A photograph with a byte per channel, and its mask, or null.
struct GreyPhoto {
    const uint8_t* __restrict__ rgb;
    const uint8_t* __restrict__ mask;
    int width, height;
};

// Returns the grey value of a pixel; sets `counts` to false if masked.
__device__ inline float grey(const GreyPhoto& photo, int x, int y, bool& counts) {
    const uint64_t pixel = uint64_t(y) * photo.width + x;
    const uint8_t* __restrict__ rgb = photo.rgb + pixel * 3;
    counts = counts && (photo.mask == nullptr || photo.mask[pixel] != 0);
    return (0.299f * rgb[0] + 0.587f * rgb[1] + 0.114f * rgb[2]) * (1.0f / 255.0f);
}

// A photograph interpolated between pixel centres.
struct GreySample {
    float value;
    float2 slope;
    bool exists;
};

__device__ inline GreySample bilinear(const GreyPhoto& photo, float2 place_px) {
    const float2 at = {place_px.x - 0.5f, place_px.y - 0.5f};
    const float2 first = {floorf(at.x), floorf(at.y)};
    // Compared as floats, which hold any position; NaN is outside.
    const bool inside = first.x >= 0.0f && first.y >= 0.0f &&
                        first.x + 1.0f < static_cast<float>(photo.width) &&
                        first.y + 1.0f < static_cast<float>(photo.height);
    if (!inside) return {0.0f, {0.0f, 0.0f}, false};
    const int x = static_cast<int>(first.x), y = static_cast<int>(first.y);
    const float2 share = {at.x - first.x, at.y - first.y};
    bool counts = true;
    const float upper_left = grey(photo, x, y, counts), upper_right = grey(photo, x + 1, y, counts);
    const float lower_left = grey(photo, x, y + 1, counts);
    const float lower_right = grey(photo, x + 1, y + 1, counts);
    const float along_upper = upper_right - upper_left, along_lower = lower_right - lower_left;
    const float upper = upper_left + share.x * along_upper;
    const float lower = lower_left + share.x * along_lower;
    return {upper + share.y * (lower - upper),
            {along_upper + share.y * (along_lower - along_upper), lower - upper},
            counts};
}

// Means and deviations of two patches, and their correlation.
struct Correlation {
    float mean_a, mean_b, contrast, inverse_product, inverse_variance, ncc;
};

// Correlates the pixels of all lanes; both values of missing pixels are 0.
__device__ inline Correlation correlation(const float (&a)[OF_LANE], const float (&b)[OF_LANE],
                                          uint32_t count) {
    constexpr float PER_PIXEL = 1.0f / PATCH_PIXELS;
    float sum_a = 0.0f, sum_b = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < OF_LANE; ++i) {
        sum_a += a[i];
        sum_b += b[i];
    }
    Correlation c;
    c.mean_a = warp_sum(sum_a) * PER_PIXEL;
    c.mean_b = warp_sum(sum_b) * PER_PIXEL;
    float aa = 0.0f, bb = 0.0f, ab = 0.0f;
#pragma unroll
    for (uint32_t i = 0; i < OF_LANE; ++i) {
        if (i >= count) continue;
        const float from_a = a[i] - c.mean_a, from_b = b[i] - c.mean_b;
        aa += from_a * from_a;
        bb += from_b * from_b;
        ab += from_a * from_b;
    }
    const float plain = warp_sum(aa) * PER_PIXEL;
    const float variance_a = plain + VARIANCE_FLOOR;
    const float variance_b = warp_sum(bb) * PER_PIXEL + VARIANCE_FLOOR;
    c.contrast = sqrtf(plain);
    c.inverse_product = 1.0f / sqrtf(variance_a * variance_b);
    c.inverse_variance = 1.0f / variance_b;
    c.ncc = warp_sum(ab) * PER_PIXEL * c.inverse_product;
    return c;
}

__device__ inline float ncc_bwd(const Correlation& c, float a, float b) {
    const float by_a = (a - c.mean_a) * c.inverse_product;
    const float by_b = c.ncc * (b - c.mean_b) * c.inverse_variance;
    return (by_a - by_b) * (1.0f / PATCH_PIXELS);
}

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
