// The tiles that a splat reaches: counted by `project_fwd`, listed by `instances_*`.
//
// Most splats touch a few tiles, which their own lane tests one after the other; the tiles of the
// others are tested by the whole warp, so that one huge splat does not hold up 31 small ones.
#pragma once

#include "layout.cuh"
#include "splat.cuh"

// Candidates that a lane tests on its own.
constexpr uint32_t TILES_ALONE = 6;

// What the test of a tile asks of a splat.
struct TileQuery {
    float2 mean_px;
    Sym2 conic;
    float exponent_min;
    Rect tiles;      // x0..x1 by y0..y1
    uint32_t slot;   // of the splat
    uint32_t first;  // its first instance
    uint32_t count;  // its number of instances
};

// The tiles that these pixels lie in.
__device__ inline Rect tiles_of(Rect pixels) {
    if (pixels.x0 >= pixels.x1 || pixels.y0 >= pixels.y1) return {0, 0, 0, 0};
    return {static_cast<uint16_t>(pixels.x0 / TILE), static_cast<uint16_t>(pixels.y0 / TILE),
            static_cast<uint16_t>((pixels.x1 + TILE - 1) / TILE),
            static_cast<uint16_t>((pixels.y1 + TILE - 1) / TILE)};
}

__device__ inline uint32_t area(Rect r) { return uint32_t(r.x1 - r.x0) * uint32_t(r.y1 - r.y0); }

__device__ inline bool reaches_tile(const Camera& view, const TileQuery& q, uint32_t x, uint32_t y) {
    const float2 low = {x * TILE + 0.5f - q.mean_px.x, y * TILE + 0.5f - q.mean_px.y};
    const float2 high = {min((x + 1) * TILE, view.size[0]) - 0.5f - q.mean_px.x,
                         min((y + 1) * TILE, view.size[1]) - 0.5f - q.mean_px.y};
    return reaches(q.conic, q.exponent_min, low, high);
}

__device__ inline TileQuery broadcast(const TileQuery& q, uint32_t lane) {
    const auto from = [lane](auto value) { return __shfl_sync(FULL_WARP, value, lane); };
    TileQuery out;
    out.mean_px = {from(q.mean_px.x), from(q.mean_px.y)};
    out.conic = {from(q.conic.xx), from(q.conic.xy), from(q.conic.yy)};
    out.exponent_min = from(q.exponent_min);
    const uint32_t low = from(uint32_t{q.tiles.x0} | uint32_t{q.tiles.y0} << 16);
    const uint32_t high = from(uint32_t{q.tiles.x1} | uint32_t{q.tiles.y1} << 16);
    out.tiles = {static_cast<uint16_t>(low), static_cast<uint16_t>(low >> 16),
                 static_cast<uint16_t>(high), static_cast<uint16_t>(high >> 16)};
    out.slot = from(q.slot);
    out.first = from(q.first);
    out.count = from(q.count);
    return out;
}

// Calls `visit(query, rank, tile_x, tile_y)` for each tile that the lane's splat reaches, rank
// counting from 0 per splat, on any lane; returns the number of the lane's own splat. All lanes of
// the warp take part; those without a splat bring an empty rectangle of tiles.
template <typename Visit>
__device__ inline uint32_t for_each_tile(const Camera& view, const TileQuery& own, Visit visit) {
    const uint32_t lane = threadIdx.x % WARP;
    const uint32_t candidates = area(own.tiles);
    uint32_t found = 0;
    if (candidates <= TILES_ALONE) {
        for (uint32_t y = own.tiles.y0; y < own.tiles.y1; ++y) {
            for (uint32_t x = own.tiles.x0; x < own.tiles.x1; ++x) {
                if (candidates == 1 || reaches_tile(view, own, x, y)) visit(own, found++, x, y);
            }
        }
    }
    for (uint32_t crowd = __ballot_sync(FULL_WARP, candidates > TILES_ALONE); crowd != 0;
         crowd &= crowd - 1) {
        const uint32_t source = __ffs(static_cast<int>(crowd)) - 1;
        const TileQuery q = broadcast(own, source);
        const uint32_t width = q.tiles.x1 - q.tiles.x0;
        const uint32_t count = area(q.tiles);
        uint32_t hits = 0;
        for (uint32_t base = 0; base < count; base += WARP) {
            const uint32_t at = base + lane;
            const uint32_t x = q.tiles.x0 + at % width, y = q.tiles.y0 + at / width;
            const bool hit = at < count && reaches_tile(view, q, x, y);
            const uint32_t mask = __ballot_sync(FULL_WARP, hit);
            if (hit) visit(q, hits + __popc(mask & lanes_below()), x, y);
            hits += __popc(mask);
        }
        if (lane == source) found = hits;
    }
    return found;
}
