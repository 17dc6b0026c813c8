// The tiles that a splat reaches: counted by `project_fwd`, listed by `instances_*`.
//
// Most splats may touch a few tiles, some thousands. So a warp puts the candidates of its 32 splats
// into one row and tests 32 of them at a time, whosesoever they are.
#pragma once

#include "layout.cuh"
#include "splat.cuh"

// What the test of a tile asks of a splat.
struct TileQuery {
    float2 mean_px;
    Sym2 conic;
    float exponent_min;
    Rect tiles;  // the candidates: x0..x1 by y0..y1
};

// The same for the whole warp to read, in three steps of 16 bytes.
struct alignas(16) SharedQuery {
    float2 mean_px;
    float exponent_min;
    uint32_t begin;  // its first candidate in the warp's row
    Sym2 conic;
    uint32_t end;            // the candidate behind its last
    uint32_t corner;         // x0 in the lower half, y0 in the upper
    uint32_t width;          // in tiles
    uint32_t inverse_width;  // (2^32 - 1) / width
    uint32_t owner;          // the lane whose splat it is
};

// The tiles that these pixels lie in.
__device__ inline Rect tiles_of(Rect pixels) {
    if (pixels.x0 >= pixels.x1 || pixels.y0 >= pixels.y1) return {0, 0, 0, 0};
    return {static_cast<uint16_t>(pixels.x0 / TILE), static_cast<uint16_t>(pixels.y0 / TILE),
            static_cast<uint16_t>((pixels.x1 + TILE - 1) / TILE),
            static_cast<uint16_t>((pixels.y1 + TILE - 1) / TILE)};
}

__device__ inline uint32_t area(Rect r) { return uint32_t(r.x1 - r.x0) * uint32_t(r.y1 - r.y0); }

__device__ inline bool reaches_tile(const Camera& view, const SharedQuery& q, uint32_t x,
                                    uint32_t y) {
    const float2 low = {x * TILE + 0.5f - q.mean_px.x, y * TILE + 0.5f - q.mean_px.y};
    const float2 high = {min((x + 1) * TILE, view.size[0]) - 0.5f - q.mean_px.x,
                         min((y + 1) * TILE, view.size[1]) - 0.5f - q.mean_px.y};
    return reaches(q.conic, q.exponent_min, low, high);
}

// Column and row of a candidate, as counted in the whole image.
__device__ inline uint2 tile_of(const SharedQuery& q, uint32_t candidate) {
    // The inverse is rounded down: the quotient comes out right or too small by 1.
    const uint32_t at = candidate - q.begin;
    uint32_t y = __umulhi(at, q.inverse_width);
    uint32_t x = at - y * q.width;
    if (x >= q.width) {
        x -= q.width;
        ++y;
    }
    return {(q.corner & 0xffffu) + x, (q.corner >> 16) + y};
}

// Calls `visit(owner, rank, tile_x, tile_y)` for each tile that the splat of lane `owner` reaches,
// on any lane of the warp; ranks count from 0 per splat, row by row. Returns the number of the lane's
// own splat. All lanes take part; those without a splat bring an empty rectangle of tiles. The only
// candidate of a splat counts as reached. Called once per kernel, by blocks of THREADS.
template <uint32_t THREADS, typename Visit>
__device__ inline uint32_t for_each_tile(const Camera& view, const TileQuery& own, Visit visit) {
    __shared__ SharedQuery queries_of_block[THREADS];
    __shared__ uint32_t found_of_block[THREADS];
    const uint32_t lane = threadIdx.x % WARP;
    SharedQuery* const queries = queries_of_block + (threadIdx.x - lane);
    uint32_t* const found = found_of_block + (threadIdx.x - lane);

    const uint32_t count = area(own.tiles);
    const bool tested = count > 1;
    if (count == 1) visit(lane, 0, own.tiles.x0, own.tiles.y0);
    // Sides have at most 4,096 tiles: the sum over a warp's splats is at most 2^29.
    const uint32_t end = warp_inclusive_sum(tested ? count : 0);
    const uint32_t begin = tested ? end - count : UINT32_MAX;
    const uint32_t all_tested = __ballot_sync(FULL_WARP, tested);
    if (tested) {
        const uint32_t width = own.tiles.x1 - own.tiles.x0;
        // Without gaps, so that the number of a query is that of the begins up to its own.
        queries[__popc(all_tested & lanes_below())] = {
            own.mean_px, own.exponent_min, begin, own.conic, end,
            uint32_t{own.tiles.x0} | uint32_t{own.tiles.y0} << 16, width, UINT32_MAX / width, lane};
    }
    __syncwarp();  // queries are there

    const uint32_t total = __shfl_sync(FULL_WARP, end, WARP - 1);
    uint32_t begun = 0;    // queries that begin before this round
    uint32_t carried = 0;  // tiles that the splat of the last lane has reached so far
    for (uint32_t base = 0; base < total; base += WARP) {
        const uint32_t candidate = base + lane;
        const uint32_t begins = warp_or(begin - base < WARP ? 1u << (begin - base) : 0);
        const SharedQuery q = queries[begun + __popc(begins & lanes_up_to()) - 1];
        const uint2 tile = tile_of(q, candidate);
        const bool hit = candidate < total && reaches_tile(view, q, tile.x, tile.y);
        // Lanes below this one that work on the same splat are those from its begin on.
        const uint32_t below = __ballot_sync(FULL_WARP, hit) & lanes_below();
        const bool goes_on = q.begin < base;
        const uint32_t rank = goes_on ? carried + __popc(below) : __popc(below >> (q.begin - base));
        if (hit) visit(q.owner, rank, tile.x, tile.y);
        const uint32_t reached = rank + hit;
        if (candidate + 1 == q.end) found[q.owner] = reached;
        carried = __shfl_sync(FULL_WARP, reached, WARP - 1);
        begun += __popc(begins);
    }
    __syncwarp();  // numbers are there
    return tested ? found[lane] : count;
}
