// fuse: fuses the depths of a view into a lattice of voxels with truncated signed distances.
//
// mark_bricks: one thread per sampled pixel. Bits are only set, in any order.
// weigh_pixels: one thread per pixel.
// fuse_bricks: one block per brick of 8x8x8 voxels. Each thread has two voxels, four layers apart, and exclusive write
// access to them.
//
// Positions are offsets from the lattice's origin along the world's axes; positions in nodes count voxels from the
// first node. The twin in src/crates/mesh/src/tsdf/ uses double precision. With a thousand voxels along a side, single
// precision resolves a ten-thousandth of a voxel.
//
// Shapes: depths and mask [h, w], marks one bit per brick, weighed [h, w, 2], image [h, w, 3], maps [h, w, 4],
// bricks [bricks, 21], voxels [bricks, 512].

#include "abi.cuh"
#include "linalg.cuh"

static_assert(BRICK_VOXELS == BRICK_SIDE * BRICK_SIDE * BRICK_SIDE, "a cube");
static_assert(BRICK_VOXELS == 2 * FUSE_BLOCK, "two voxels a thread");
static_assert(BRICK_WIDTH == 3 + 3 * BRICK_DIRECTIONS, "a place and directions");

__device__ inline float length(float3 a) { return sqrtf(dot(a, a)); }

__device__ inline Mat3 rotation_of(const LatticeView& view) {
    const float* r = view.rotation;
    return {float3{r[0], r[1], r[2]}, float3{r[3], r[4], r[5]}, float3{r[6], r[7], r[8]}};
}

__device__ inline float3 triple(const float* values) { return {values[0], values[1], values[2]}; }

// Converts a position to camera axes.
__device__ inline float3 to_camera(const LatticeView& view, float3 place) {
    return add(mul(rotation_of(view), place), triple(view.origin_cam));
}

__device__ inline bool is_contracted(const LatticeView& view) { return view.radius > 0.0f; }

// Converts a position in nodes to units of contracted space.
__device__ inline float3 contracted(const LatticeView& view, float3 nodes) {
    return {nodes.x * view.voxel - 2.0f, nodes.y * view.voxel - 2.0f, nodes.z * view.voxel - 2.0f};
}

// Converts a position in nodes to a position; twin of `Space::world`.
__device__ inline float3 place_of(const LatticeView& view, float3 nodes) {
    if (!is_contracted(view)) return scale(nodes, view.voxel);
    const float3 y = contracted(view, nodes);
    const float far = fminf(length(y), FARTHEST);
    const float stretch = far > 1.0f ? 1.0f / ((2.0f - far) * far) : 1.0f;
    return scale(y, view.radius * stretch);
}

// Twin of `Space::holds`; false for NaN.
__device__ inline bool holds(const LatticeView& view, float3 nodes) {
    const float3 last = {view.nodes[0] - 1.0f, view.nodes[1] - 1.0f, view.nodes[2] - 1.0f};
    const bool inside = nodes.x >= 0.0f && nodes.y >= 0.0f && nodes.z >= 0.0f && nodes.x <= last.x &&
                        nodes.y <= last.y && nodes.z <= last.z;
    return inside && (!is_contracted(view) || length(contracted(view, nodes)) <= FARTHEST);
}

// Converts a position to a position in nodes; returns false outside the lattice. Twin of `Space::nodes_of`.
__device__ inline bool nodes_of(const LatticeView& view, float3 place, float3& nodes) {
    if (is_contracted(view)) {
        const float3 x = scale(place, 1.0f / view.radius);
        const float far = length(x);
        const float3 y = far > 1.0f ? scale(x, (2.0f - 1.0f / far) / far) : x;
        nodes = scale(float3{y.x + 2.0f, y.y + 2.0f, y.z + 2.0f}, 1.0f / view.voxel);
    } else {
        nodes = scale(place, 1.0f / view.voxel);
    }
    return holds(view, nodes);
}

// Returns the largest number of world units per unit of the lattice's space within `reach` voxels of a position in
// nodes. Twin of `Space::units_a_unit`.
__device__ inline float units_a_unit(const LatticeView& view, float3 nodes, float reach) {
    if (!is_contracted(view)) return 1.0f;
    const float far = length(contracted(view, nodes)) + reach * view.voxel;
    const float left = 2.0f - fminf(fmaxf(far, 1.0f), FARTHEST);
    return view.radius / (left * left);
}

// Returns the depth of a valid pixel, else 0.
__device__ inline float counted_depth(const float* __restrict__ depths, const uint8_t* __restrict__ mask,
                                      uint64_t pixel) {
    const float depth = depths[pixel];
    const bool counts = mask == nullptr || mask[pixel] != 0;
    return counts && depth > 0.0f && isfinite(depth) ? depth : 0.0f;
}

// Returns the ray through a pixel's centre in camera axes, z = 1.
__device__ inline float3 ray_of(const float* focal_px, const float* centre_px, uint32_t x, uint32_t y) {
    return {(x + 0.5f - centre_px[0]) / focal_px[0], (y + 0.5f - centre_px[1]) / focal_px[1], 1.0f};
}

// Marks the bricks within the margin of a position in nodes; twin of `Survey::call`.
__device__ inline void call(const MarkBricksArgs& a, float3 nodes) {
    const float at[3] = {nodes.x, nodes.y, nodes.z};
    uint32_t low[3], high[3];
#pragma unroll
    for (int k = 0; k < 3; ++k) {
        const float last = a.view.nodes[k] - 1.0f;
        low[k] = static_cast<uint32_t>(fmaxf(at[k] - a.margin, 0.0f) / BRICK_SIDE);
        high[k] = min(static_cast<uint32_t>(fminf(at[k] + a.margin, last) / BRICK_SIDE), a.bricks[k] - 1);
    }
    for (uint32_t z = low[2]; z <= high[2]; ++z) {
        for (uint32_t y = low[1]; y <= high[1]; ++y) {
            for (uint32_t x = low[0]; x <= high[0]; ++x) {
                const uint64_t brick = (uint64_t{z} * a.bricks[1] + y) * a.bricks[0] + x;
                const uint32_t bit = 1u << (brick % 32);
                uint32_t* const word = a.marks + brick / 32;
                // Most bits are set already; setting one twice is harmless.
                if ((*word & bit) == 0) atomicOr(word, bit);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(FUSE_BLOCK)
    mark_bricks(const __grid_constant__ MarkBricksArgs a) {
    const uint32_t number = blockIdx.x * blockDim.x + threadIdx.x;
    if (number >= a.count) return;
    const uint32_t x = number % a.columns * a.stride, y = number / a.columns * a.stride;
    const float depth = counted_depth(a.depths, a.mask, uint64_t{y} * a.view.size[0] + x);
    if (depth <= 0.0f) return;
    const float3 ray = ray_of(a.view.focal_px, a.view.centre_px, x, y);
    const float3 along = mul_transposed(rotation_of(a.view), ray);
    const float3 eye = triple(a.view.eye);
    float3 nodes;
    if (!nodes_of(a.view, add(eye, scale(along, depth)), nodes)) return;
    const float truncation = a.view.truncation * units_a_unit(a.view, nodes, 0.0f);
    call(a, nodes);
#pragma unroll
    for (int side = -1; side <= 1; side += 2) {
        const float beside = depth + side * truncation;
        if (beside > 0.0f && nodes_of(a.view, add(eye, scale(along, beside)), nodes)) call(a, nodes);
    }
}

// Returns the position that a pixel shows, in camera axes; false if outside the image or not valid.
__device__ inline bool shown_at(const WeighPixelsArgs& a, int x, int y, float3& place) {
    if (x < 0 || y < 0 || x >= static_cast<int>(a.size[0]) || y >= static_cast<int>(a.size[1])) return false;
    const float depth = counted_depth(a.depths, a.mask, uint64_t(y) * a.size[0] + x);
    place = scale(ray_of(a.focal_px, a.centre_px, x, y), depth);
    return depth > 0.0f;
}

// Returns the step from the previous to the next pixel along an axis, in camera axes. Uses the pixel itself for a
// missing neighbour; false if both are missing.
__device__ inline bool step_along(const WeighPixelsArgs& a, int2 pixel, int2 axis, float3 own, float3& step) {
    float3 before, behind;
    const bool has_before = shown_at(a, pixel.x - axis.x, pixel.y - axis.y, before);
    const bool has_behind = shown_at(a, pixel.x + axis.x, pixel.y + axis.y, behind);
    step = sub(has_behind ? behind : own, has_before ? before : own);
    return has_before || has_behind;
}

// Twin of `DepthView::weights`.
extern "C" __global__ void __launch_bounds__(FUSE_BLOCK)
    weigh_pixels(const __grid_constant__ WeighPixelsArgs a) {
    const uint32_t pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= a.size[0] * a.size[1]) return;
    const int2 at = {static_cast<int>(pixel % a.size[0]), static_cast<int>(pixel / a.size[0])};
    float3 own;
    float2 weighed = {0.0f, 0.0f};
    if (shown_at(a, at.x, at.y, own)) {
        float cosine = 0.0f;
        float3 across, down;
        if (step_along(a, at, int2{1, 0}, own, across) && step_along(a, at, int2{0, 1}, own, down)) {
            cosine = fabsf(dot(normalize(cross(across, down)), normalize(own)));
        }
        // Keeps NaN, which has no weight.
        const float held = cosine < GRAZING_WEIGHT ? GRAZING_WEIGHT : cosine;
        weighed = {own.z, held > 1.0f ? 1.0f : held};
    }
    reinterpret_cast<float2*>(a.weighed)[pixel] = weighed;
}

// True if a sphere may be in view, its centre in camera axes; twin of `Camera::sees`.
__device__ inline bool sees(const LatticeView& view, float3 centre_cam, float radius) {
    if (!(centre_cam.z > -radius)) return false;
    const float at[2] = {centre_cam.x, centre_cam.y};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
        const float focal = view.focal_px[k];
        const float before = view.centre_px[k], behind = view.size[k] - view.centre_px[k];
        // Planes through the camera and the image's edges, with normals to the inside.
        const float low = (focal * at[k] + before * centre_cam.z) / hypotf(focal, before);
        const float high = (behind * centre_cam.z - focal * at[k]) / hypotf(focal, behind);
        if (low < -radius || high < -radius) return false;
    }
    return true;
}

// Returns the brick's direction nearest to that of the camera; twin of `Directions::number`.
__device__ inline uint32_t direction_of(const float* __restrict__ directions, float3 to_eye) {
    uint32_t nearest = 0;
    float most = -2.0f;
#pragma unroll
    for (uint32_t number = 0; number < BRICK_DIRECTIONS; ++number) {
        const float cosine = dot(triple(directions + 3 * number), to_eye);
        if (cosine > most) {
            most = cosine;
            nearest = number;
        }
    }
    return nearest;
}

// Returns the interpolated depth at an image position and the weight of its pixel; false if there is none. Twin of
// `DepthView::depth_at`.
__device__ inline bool depth_at(const FuseBricksArgs& a, float2 place_px, float truncation, uint64_t& pixel,
                                float2& seen) {
    const float2* __restrict__ weighed = reinterpret_cast<const float2*>(a.weighed);
    const int width = static_cast<int>(a.view.size[0]), height = static_cast<int>(a.view.size[1]);
    // Reject positions outside the image and NaN before the conversion to integers.
    if (!(place_px.x >= 0.0f && place_px.y >= 0.0f && place_px.x < width && place_px.y < height)) return false;
    const int x = static_cast<int>(place_px.x), y = static_cast<int>(place_px.y);
    pixel = uint64_t(y) * width + x;
    seen = weighed[pixel];
    if (seen.x <= 0.0f) return false;
    const float2 corner = {floorf(place_px.x - 0.5f), floorf(place_px.y - 0.5f)};
    const int x0 = static_cast<int>(corner.x), y0 = static_cast<int>(corner.y);
    if (x0 < 0 || y0 < 0 || x0 + 1 >= width || y0 + 1 >= height) return true;
    const uint64_t first = uint64_t(y0) * width + x0;
    const float upper_left = weighed[first].x, upper_right = weighed[first + 1].x;
    const float lower_left = weighed[first + width].x, lower_right = weighed[first + width + 1].x;
    const float least = fminf(fminf(upper_left, upper_right), fminf(lower_left, lower_right));
    const float most = fmaxf(fmaxf(upper_left, upper_right), fmaxf(lower_left, lower_right));
    if (least <= 0.0f || most - least > truncation) return true;
    const float s = place_px.x - 0.5f - corner.x, t = place_px.y - 0.5f - corner.y;
    const float upper = (1.0f - s) / upper_left + s / upper_right;
    const float lower = (1.0f - s) / lower_left + s / lower_right;
    seen.x = 1.0f / ((1.0f - t) * upper + t * lower);
    return true;
}

// Converts to half precision without a sign and back; twins of `encoded` and `decoded`.
__device__ inline uint32_t half_from(float weight) {
    const uint32_t bits = (__float_as_uint(weight) + (1u << 12)) >> 13;
    return bits > (112u << 10) ? bits - (112u << 10) : 0;
}

__device__ inline float half_to(uint32_t half) {
    return half == 0 ? 0.0f : __uint_as_float((half + (112u << 10)) << 13);
}

// Observation of a voxel by a view.
struct DepthSample {
    float distance;  // relative to the truncation, at least -1
    float weight;    // above 0
    uint32_t direction;
    uint64_t pixel;
};

// Moves an 8-bit channel towards a new value by a share.
__device__ inline uint32_t mixed(uint32_t own, float drawn, float whole, float share) {
    const float held = fminf(fmaxf(drawn / whole, 0.0f), 1.0f);
    return static_cast<uint32_t>(own + share * (255.0f * held - own) + 0.5f);
}

// Twin of `Voxel::add`.
__device__ inline uint2 added(const FuseBricksArgs& a, uint2 voxel, const DepthSample& sample) {
    const float before = half_to(voxel.x >> 16);
    const float weight = fminf(fmaxf(sample.weight, VOXEL_WEIGHT_MIN), VOXEL_WEIGHT_MAX);
    const float share = weight / (before + weight);
    const float mean = static_cast<int16_t>(voxel.x & 0xffff) / DISTANCE_STEPS;
    const float moved = mean + share * (fminf(sample.distance, 1.0f) - mean);
    const float steps = (fminf(fmaxf(moved, -1.0f), 1.0f) + 1.0f) * DISTANCE_STEPS;
    const int distance = static_cast<int>(steps + 0.5f) - static_cast<int>(DISTANCE_STEPS);
    uint32_t color = voxel.y & 0xffffff, seen = voxel.y >> 24;
    if (sample.distance < 1.0f) {
        const float* const drawn = a.image + sample.pixel * 3;
        // Colours over black are darkened by the transmittance.
        const float whole = fmaxf(a.maps[sample.pixel * 4 + 3], OPAQUE_MIN);
        const float part = color == 0 ? 1.0f : share;
        color = mixed(color & 0xff, drawn[0], whole, part) |
                mixed(color >> 8 & 0xff, drawn[1], whole, part) << 8 |
                mixed(color >> 16, drawn[2], whole, part) << 16;
        if (color == 0) color = 0x010101;
    } else {
        seen |= 4u << sample.direction;
    }
    if ((seen & 3) < 3) seen += 1;
    const uint32_t half = half_from(fminf(before + weight, VOXEL_WEIGHT_MAX));
    return {(static_cast<uint32_t>(distance) & 0xffff) | half << 16, color | seen << 24};
}

// Returns the view's observation at a position in nodes; false if the view does not see it. Twin of `Seen::sample`.
__device__ inline bool sample_at(const FuseBricksArgs& a, float3 nodes, DepthSample& sample) {
    const LatticeView& view = a.view;
    if (!holds(view, nodes)) return false;
    const float3 cam = to_camera(view, place_of(view, nodes));
    if (cam.z <= 0.0f) return false;
    const float truncation = view.truncation * units_a_unit(view, nodes, 0.0f);
    const float2 place_px = {view.focal_px[0] * cam.x / cam.z + view.centre_px[0],
                             view.focal_px[1] * cam.y / cam.z + view.centre_px[1]};
    float2 seen;
    if (!depth_at(a, place_px, truncation, sample.pixel, seen)) return false;
    sample.distance = (seen.x - cam.z) / truncation;
    const float nearness = fminf(a.near / cam.z, 1.0f);
    sample.weight = seen.y * nearness * nearness;
    return sample.distance >= -1.0f && sample.weight > 0.0f;
}

extern "C" __global__ void __launch_bounds__(FUSE_BLOCK)
    fuse_bricks(const __grid_constant__ FuseBricksArgs a) {
    const float* __restrict__ brick = a.bricks + uint64_t{blockIdx.x} * BRICK_WIDTH;
    const float3 corner = scale(triple(brick), BRICK_SIDE);
    // Bounding sphere of the brick: half the diagonal of seven voxels.
    constexpr float MIDDLE = 0.5f * (BRICK_SIDE - 1), REACH = MIDDLE * 1.7320508f;
    const float3 middle = {corner.x + MIDDLE, corner.y + MIDDLE, corner.z + MIDDLE};
    const float3 centre = place_of(a.view, middle);
    const float radius = REACH * a.view.voxel * units_a_unit(a.view, middle, REACH);
    if (!sees(a.view, to_camera(a.view, centre), radius)) return;
    DepthSample sample;
    sample.direction = direction_of(brick + 3, normalize(sub(triple(a.view.eye), centre)));
    uint2* const voxels = reinterpret_cast<uint2*>(a.voxels) + uint64_t{blockIdx.x} * BRICK_VOXELS;
#pragma unroll
    for (uint32_t node = threadIdx.x; node < BRICK_VOXELS; node += FUSE_BLOCK) {
        const float3 nodes = {corner.x + node % BRICK_SIDE, corner.y + node / BRICK_SIDE % BRICK_SIDE,
                              corner.z + node / (BRICK_SIDE * BRICK_SIDE)};
        if (sample_at(a, nodes, sample)) voxels[node] = added(a, voxels[node], sample);
    }
}
