// Tiles that a splat reaches: counted by `project_fwd` and `count_rows`, listed by `instances_*` and
// `band_instances_*`.
//
// Most splats touch few rows of tiles, some all of an image. Therefore a warp concatenates the rows of its 32 splats
// and processes 32 rows at a time, across splats.
#pragma once

#include "layout.cuh"
#include "splat.cuh"

// Query of the tiles of a splat.
struct TileQuery {
    float2 mean_px;
    Sym2 conic;
    float exponent_min;
    Rect tiles;  // the candidates: x0..x1 by y0..y1
};

// A query in shared memory for the whole warp, in three 16-byte quads.
struct alignas(16) SharedQuery {
    Spans spans;
    float top_px;     // height of its first row of pixels
    float bottom_px;  // height of the image's last
    uint32_t begin;   // its first row among those of the warp
    uint32_t end;     // the row after its last
    uint32_t x;       // x0 in the lower half, x1 in the upper
    uint32_t y;       // 12 bits: first row; 12 bits: rows above it; then the lane of the splat
};

// Visits all rows of a splat's tiles.
struct AllRows {
    __device__ bool any(Rect) const { return true; }
    __device__ uint32_t first(Rect r) const { return r.y0; }
    __device__ uint32_t end(Rect r) const { return r.y1; }
    __device__ uint32_t above(uint32_t) const { return 0; }  // of a query's `y`
};

// Visits the rows in a band of the view. Spans are still computed from the splat's first row, so that bands list
// exactly the tiles that the whole view would.
struct BandRows {
    uint32_t band_first, band_end;

    __device__ bool any(Rect r) const { return r.y0 < band_end && r.y1 > band_first; }
    __device__ uint32_t first(Rect r) const { return max(uint32_t{r.y0}, band_first); }
    __device__ uint32_t end(Rect r) const { return min(uint32_t{r.y1}, band_end); }
    __device__ uint32_t above(uint32_t y) const { return y >> 12 & 0xfffu; }
};

// Tiles x to before x + width of row y that the splat of lane `owner` reaches.
struct TileRow {
    uint32_t owner;
    uint32_t rank;   // index of the first among the splat's tiles
    uint32_t begin;  // index of the first among the tiles of the rows visited together
    uint32_t x, y;
    uint32_t width;
};

// Returns the tiles of these pixels.
__device__ inline Rect tiles_of(Rect pixels) {
    if (pixels.x0 >= pixels.x1 || pixels.y0 >= pixels.y1) return {0, 0, 0, 0};
    return {static_cast<uint16_t>(pixels.x0 / TILE), static_cast<uint16_t>(pixels.y0 / TILE),
            static_cast<uint16_t>((pixels.x1 + TILE - 1) / TILE),
            static_cast<uint16_t>((pixels.y1 + TILE - 1) / TILE)};
}

__device__ inline uint32_t area(Rect r) { return uint32_t(r.x1 - r.x0) * uint32_t(r.y1 - r.y0); }

// Returns the run that contains item `base` + lane, for contiguous runs. `begin` is the first item of the lane's own
// run, UINT32_MAX if it has none. All lanes must take part, for each 32 items in order; `begun` counts the earlier
// runs.
__device__ inline uint32_t run_at(uint32_t begin, uint32_t base, uint32_t& begun) {
    const uint32_t begins = warp_or(begin - base < WARP ? 1u << (begin - base) : 0);
    const uint32_t run = begun + __popc(begins & lanes_up_to()) - 1;
    begun += __popc(begins);
    return run;
}

template <typename Rows>
__device__ inline SharedQuery shared_query(const ViewCamera& view, const TileQuery& own,
                                           uint32_t begin, Rows rows) {
    const Rect r = own.tiles;
    const uint32_t first = rows.first(r);
    return {spans_of(own.mean_px, own.conic, own.exponent_min, view.size[1]),
            r.y0 * TILE + 0.5f - own.mean_px.y,
            view.size[1] - 0.5f - own.mean_px.y,
            begin,
            begin + (rows.end(r) - first),
            uint32_t{r.x0} | uint32_t{r.x1} << 16,
            first | (first - r.y0) << 12 | threadIdx.x % WARP << 24};
}

// Returns the number of tiles from x on that the splat reaches in its row `at`.
__device__ inline uint32_t reached_in_row(const ViewCamera& view, const SharedQuery& q, uint32_t at,
                                          uint32_t& x) {
    const float low = fmaf(TILE, at, q.top_px);
    uint32_t first, end;
    columns(q.spans, low, fminf(low + (TILE - 1), q.bottom_px), view.size[0], first, end);
    x = max(first / TILE, q.x & 0xffffu);
    const uint32_t x1 = min((end + TILE - 1) / TILE, q.x >> 16);
    return first < end && x < x1 ? x1 - x : 0;
}

// Calls `visit(row, total)` on all lanes of the warp at once: first for the splats with a single candidate tile, which
// counts as reached, then for 32 rows of the other splats at a time (lanes after the last row get an empty one).
// `total` is the number of their tiles. A splat's ranks count from 0 over its visited rows. Returns the number of tiles
// of the lane's own splat. All lanes must take part; lanes without a splat pass an empty rectangle of tiles. Called
// once per kernel, by blocks of THREADS.
template <uint32_t THREADS, typename Visit, typename Rows = AllRows>
__device__ inline uint32_t for_each_row(const ViewCamera& view, const TileQuery& own, Visit visit,
                                        Rows visited = {}) {
    __shared__ SharedQuery queries_of_block[THREADS];
    __shared__ uint32_t found_of_block[THREADS];
    const uint32_t lane = threadIdx.x % WARP;
    SharedQuery* const queries = queries_of_block + (threadIdx.x - lane);
    uint32_t* const found = found_of_block + (threadIdx.x - lane);

    const uint32_t count = visited.any(own.tiles) ? area(own.tiles) : 0;
    const uint32_t singles = __ballot_sync(FULL_WARP, count == 1);
    visit(TileRow{lane, 0, static_cast<uint32_t>(__popc(singles & lanes_below())), own.tiles.x0,
                  own.tiles.y0, count == 1},
          __popc(singles));
    const bool tested = count > 1;
    // An image has at most 4,096 rows of tiles: the sum over a warp's splats is at most 2^17.
    const uint32_t rows = tested ? visited.end(own.tiles) - visited.first(own.tiles) : 0;
    const uint32_t rows_end = warp_inclusive_sum(rows);
    const uint32_t rows_begin = tested ? rows_end - rows : UINT32_MAX;
    const uint32_t all_tested = __ballot_sync(FULL_WARP, tested);
    if (tested) {
        queries[__popc(all_tested & lanes_below())] =
            shared_query(view, own, rows_begin, visited);
    }
    __syncwarp();  // queries are there

    const uint32_t total_rows = __shfl_sync(FULL_WARP, rows_end, WARP - 1);
    uint32_t begun = 0;
    uint32_t carried = 0;  // tiles that the splat of the last lane has reached so far
    for (uint32_t base = 0; base < total_rows; base += WARP) {
        const uint32_t item = base + lane;
        const SharedQuery q = queries[run_at(rows_begin, base, begun)];
        TileRow row;
        row.owner = q.y >> 24;
        row.y = (q.y & 0xfffu) + (item - q.begin);
        row.width = reached_in_row(view, q, item - q.begin + visited.above(q.y), row.x);
        if (item >= total_rows) row.width = 0;
        const uint32_t end = warp_inclusive_sum(row.width);
        row.begin = end - row.width;
        const bool goes_on = q.begin < base;
        const uint32_t before = __shfl_sync(FULL_WARP, row.begin, goes_on ? 0 : q.begin - base);
        row.rank = row.begin - before + (goes_on ? carried : 0);
        visit(row, __shfl_sync(FULL_WARP, end, WARP - 1));
        const uint32_t reached = row.rank + row.width;
        if (item + 1 == q.end) found[row.owner] = reached;
        carried = __shfl_sync(FULL_WARP, reached, WARP - 1);
    }
    __syncwarp();  // numbers are there
    return tested ? found[lane] : count;
}

// Warp tiles: the parts of a tile, one per warp.

constexpr uint32_t WARP_TILE_WIDTH = 8;
constexpr uint32_t WARP_TILE_HEIGHT = 4;
constexpr uint32_t WARP_TILES = TILE * TILE / WARP;
static_assert(WARP_TILES == BLEND_WARP_TILES, "what the host makes room for");
static_assert(WARP_TILE_WIDTH * WARP_TILE_HEIGHT == WARP, "one lane per pixel of a warp tile");
static_assert(TILE % WARP_TILE_WIDTH == 0 && TILE % WARP_TILE_HEIGHT == 0, "warp tiles fill the tile");

// A warp tile (8x4 px) and the lane's pixel.
struct WarpTile {
    uint2 pixel;
    bool inside;
    float2 centre_px;  // of the pixel
    float2 low_px, high_px;  // first and last pixel centre inside the image
};

__device__ inline WarpTile warp_tile_of(const uint32_t* size, uint32_t tiles_wide, uint32_t tile,
                                        uint32_t warp_tile) {
    constexpr uint32_t ACROSS = TILE / WARP_TILE_WIDTH;
    const uint32_t lane = threadIdx.x % WARP;
    WarpTile p;
    const uint2 corner_px = {tile % tiles_wide * TILE + warp_tile % ACROSS * WARP_TILE_WIDTH,
                             tile / tiles_wide * TILE + warp_tile / ACROSS * WARP_TILE_HEIGHT};
    p.pixel = {corner_px.x + lane % WARP_TILE_WIDTH, corner_px.y + lane / WARP_TILE_WIDTH};
    p.inside = p.pixel.x < size[0] && p.pixel.y < size[1];
    p.centre_px = {p.pixel.x + 0.5f, p.pixel.y + 0.5f};
    p.low_px = {corner_px.x + 0.5f, corner_px.y + 0.5f};
    p.high_px = {min(corner_px.x + WARP_TILE_WIDTH, size[0]) - 0.5f,
                 min(corner_px.y + WARP_TILE_HEIGHT, size[1]) - 0.5f};
    return p;
}

// Number of splats that a warp processes at a time, two lanes each.
constexpr uint32_t BATCH = 16;

// Adds the values of the two lanes of a splat.
__device__ inline float both_halves(float value) {
    return value + __shfl_xor_sync(FULL_WARP, value, BATCH);
}
