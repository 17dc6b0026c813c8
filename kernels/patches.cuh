// Twin of math/patches.rs: projection of a patch on a plane into another view's photograph, and its correlation. Same
// names, same order of arguments; see Rust for the equations. The lanes of a warp share the pixels of a patch, so sums
// over pixels are sums over the warp.
#pragma once

#include "layout.cuh"
#include "linalg.cuh"

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
