// Contribution of each Gaussian to the similarity of a view and its photograph, and its blend weight, summed over the
// pixels of the views.
//
// contribution_pixels: one block per tile, of the view or of a band of its rows, one thread per pixel. As in `blend`,
// each warp visits the instances that reach its own warp tile of 8x4 pixels. The first pass draws the pixels without
// the absent Gaussians. In the second pass the light behind each splat is known, and thus the pixel without the splat,
// or with an absent one. The results of the lanes are summed per splat, and the warps add the sums in any order. Absent
// Gaussians are evaluated at their depth but do not change the pixel.
//
// add_contributions: one thread per splat.
//
// whiten, add_weights: one thread per splat, or per Gaussian. The blend weight is the gradient of the Gaussian's colour
// if the gradient of every pixel is 1.
//
// Shapes: splats [visible, record], splat_from_instance [instances], ranges [tiles], absent [n], target
// [h, w, 3] in 8 bits, mask [h, w], image [h, w, 3], contributions [visible, 4], sums [n, 4],
// gradients [visible, record], weights [n].

#include "blend.cuh"
#include "layout.cuh"
#include "linalg.cuh"
#include "surfel_footprint.cuh"

static_assert(CONTRIBUTION_BLOCK == WARP_TILES * WARP, "one thread per pixel of a tile");

// Flag in a row's number: its Gaussian is absent. There are fewer splats than that.
constexpr uint32_t LEFT_OUT = 1u << 31;

template <class Row>
__device__ inline uint32_t number_of(const Row& row) {
    return __float_as_uint(row.number());
}

// Calls `visit` with each instance that reaches the warp tile, while any of its pixels is open. All lanes must take
// part.
template <class Footprint, class Visit>
__device__ inline void for_each_reaching(const ContributionArgs& a, TileRange range, const WarpTile& warp_tile,
                                         typename Footprint::template Rows<WARP>& own,
                                         const float& transmittance,
                                         Visit visit) {
    const float4* __restrict__ splats = reinterpret_cast<const float4*>(a.splats);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    const uint8_t* __restrict__ absent = a.absent;
    for (uint32_t base = range.start;
         base < range.end && __any_sync(FULL_WARP, transmittance > 0.0f); base += WARP) {
        const uint32_t instance = base + threadIdx.x % WARP;
        const uint32_t splat_index = splat_from_instance[min(instance, range.end - 1)];
        const float4* const record = splats + uint64_t{splat_index} * Footprint::QUADS;
        const Footprint footprint = Footprint::load(record);
        const bool hit = reaches_warp_tile(warp_tile, footprint) && instance < range.end;
        const uint32_t hits = __ballot_sync(FULL_WARP, hit);
        if (hit) {
            const uint32_t mark = absent[__float_as_uint(record[COLOR_QUAD].w)] ? LEFT_OUT : 0;
            own.put(__popc(hits & lanes_below()), row_of(footprint, record, splat_index | mark));
        }
        __syncwarp();  // the rows are there
        const uint32_t count = __popc(hits);
        for (uint32_t at = 0; at < count; ++at) visit(own.get(at));
        __syncwarp();  // all lanes have read them
    }
}

__device__ inline float held(float value) { return fminf(fmaxf(value, 0.0f), 1.0f); }

struct PixelChange {
    float error_change, squared_change;
};

// Twin of `pixel_change` for one channel.
__device__ inline void add_channel(PixelChange& sums, float drawn, float changed, float truth) {
    const float before = held(drawn), after = held(changed);
    const float change = after - before;
    sums.error_change += change * (after + before - 2.0f * truth);
    sums.squared_change += change * change;
}

__device__ inline PixelChange pixel_change(float3 drawn, float3 changed, float3 truth) {
    PixelChange sums = {0.0f, 0.0f};
    add_channel(sums, drawn.x, changed.x, truth.x);
    add_channel(sums, drawn.y, changed.y, truth.y);
    add_channel(sums, drawn.z, changed.z, truth.z);
    return sums;
}

// Returns the pixel without a splat: twin of `PixelLayer::taken_out`. `behind` is the light added behind the splat,
// `after` the transmittance there.
__device__ inline float3 taken_out(float3 drawn, float3 color, float alpha, float weight,
                                   float3 behind, float after, float3 background) {
    const float3 known = after >= BEHIND_MIN ? behind : scale(background, after);
    return add(sub(drawn, scale(color, weight)), scale(known, alpha / (1.0f - alpha)));
}

// A lane's results for a splat.
struct Share {
    float weight;
    PixelChange change;
};

// Sums the lanes' results for a splat and adds them to the global ones.
__device__ inline void add_share(float* contributions, const Share& share) {
    const float weight = warp_sum(share.weight);
    if (weight == 0.0f) return;
    // The weight is not negative, so its bits are ordered like the weights.
    const int most = warp_max(__float_as_int(share.weight));
    const float error_change = warp_sum(share.change.error_change);
    const float squared_change = warp_sum(share.change.squared_change);
    if (threadIdx.x % WARP != 0) return;
    atomicAdd(contributions, weight);
    atomicMax(reinterpret_cast<int*>(contributions + 1), most);
    atomicAdd(contributions + 2, error_change);
    atomicAdd(contributions + 3, squared_change);
}

template <class Footprint>
__device__ inline void contribution_of_pixels(const ContributionArgs& a) {
    using Row = typename Footprint::Row;
    __shared__ typename Footprint::template Rows<WARP> rows[WARP_TILES];
    const uint32_t warp = threadIdx.x / WARP;
    const uint32_t tile = a.first_tile + blockIdx.x;
    const TileRange range = a.ranges[tile];
    const WarpTile warp_tile = warp_tile_of(a.size, a.tiles_wide, tile, warp);
    const uint64_t pixel = uint64_t{warp_tile.pixel.y} * a.size[0] + warp_tile.pixel.x;
    const float3 background = {a.background[0], a.background[1], a.background[2]};

    float transmittance = warp_tile.inside ? 1.0f : -1.0f;
    float3 drawn = {0.0f, 0.0f, 0.0f};
    for_each_reaching<Footprint>(a, range, warp_tile, rows[warp], transmittance, [&](const Row& row) {
        if (number_of(row) & LEFT_OUT) return;
        const float before = transmittance;
        const float alpha = composite(pixel_alpha(row, warp_tile.centre_px), transmittance);
        drawn = add(drawn, scale(row.color(), alpha * before));
    });
    drawn = add(drawn, scale(background, fabsf(transmittance)));
    float3 truth = {0.0f, 0.0f, 0.0f};
    bool counts = false;
    if (warp_tile.inside) {
        float* const image = a.image + pixel * 3;
        image[0] = drawn.x;
        image[1] = drawn.y;
        image[2] = drawn.z;
        const uint8_t* const target = a.target + pixel * 3;
        truth = {target[0] / 255.0f, target[1] / 255.0f, target[2] / 255.0f};
        counts = !a.mask || a.mask[pixel] != 0;
    }

    transmittance = counts ? 1.0f : -1.0f;
    float3 behind = drawn;
    for_each_reaching<Footprint>(a, range, warp_tile, rows[warp], transmittance, [&](const Row& row) {
        const uint32_t number = number_of(row);
        const bool is_absent = number & LEFT_OUT;
        const float before = transmittance;
        float after = before;
        const float alpha = composite(pixel_alpha(row, warp_tile.centre_px), after);
        if (!is_absent) transmittance = after;
        Share share = {0.0f, {0.0f, 0.0f}};
        if (alpha > 0.0f) {
            const float3 color = row.color();
            share.weight = alpha * before;
            float3 changed;
            if (is_absent) {
                changed = sub(add(drawn, scale(color, share.weight)), scale(behind, alpha));
            } else {
                behind = sub(behind, scale(color, share.weight));
                changed = taken_out(drawn, color, alpha, share.weight, behind, after, background);
            }
            share.change = pixel_change(drawn, changed, truth);
        }
        add_share(a.contributions + uint64_t{number & ~LEFT_OUT} * CONTRIBUTION_WIDTH, share);
    });
}

extern "C" __global__ void __launch_bounds__(CONTRIBUTION_BLOCK)
    contribution_pixels(const __grid_constant__ ContributionArgs a) {
    contribution_of_pixels<EllipseFootprint>(a);
}

extern "C" __global__ void __launch_bounds__(CONTRIBUTION_BLOCK)
    contribution_pixels_surfels(const __grid_constant__ ContributionArgs a) {
    contribution_of_pixels<SurfelFootprint>(a);
}

extern "C" __global__ void __launch_bounds__(CONTRIBUTION_BLOCK)
    add_contributions(const __grid_constant__ AddContributionsArgs a) {
    const float* __restrict__ splats = a.splats;
    const float* __restrict__ contributions = a.contributions;
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    const uint64_t record = uint64_t{i} * a.record_width;
    const uint32_t gaussian = __float_as_uint(splats[record + RECORD_GAUSSIAN]);
    // A Gaussian has at most one splat per view, so this thread has exclusive access.
    float* const sums = a.sums + uint64_t{gaussian} * CONTRIBUTION_WIDTH;
    const float* const own = contributions + uint64_t{i} * CONTRIBUTION_WIDTH;
    sums[0] += own[0];
    sums[1] = fmaxf(sums[1], own[1]);
    sums[2] += own[2];
    sums[3] += own[3];
}

// Makes all splats white: colours clamped to 0 would have no gradient.
extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    whiten(const __grid_constant__ WhitenArgs a) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= a.visible) return;
    float* const color = a.splats + uint64_t{i} * a.record_width + RECORD_COLOR;
    color[0] = color[1] = color[2] = 1.0f;
}

extern "C" __global__ void __launch_bounds__(WEIGHTS_BLOCK)
    add_weights(const __grid_constant__ AddWeightsArgs a) {
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t splat_index = gaussian < a.gaussians ? a.splat_from_gaussian[gaussian] : UNSEEN;
    if (splat_index == UNSEEN) return;
    a.weights[gaussian] += load_gradient(a.gradients, splat_index, a.record_width).d_color[0];
}
