// The kernels of the tests' primitive: balls of one radius and one colour, drawn as 3D Gaussians whose
// three scales are equal. All values of a row lie in one table, in the order of the schema's columns. The
// template of each kernel is the product's.

#include "adam.cuh"
#include "project.cuh"

constexpr uint32_t BALL_WIDTH = 8;
constexpr uint32_t BALL_RADIUS = 3, BALL_OPACITY = 4, BALL_COLOR = 5;

struct Ball {
    using Footprint = EllipseFootprint;
    using Splat = EllipseSplat;
};

// Without a rotation, and without a 3D filter.
__device__ inline Shape shape_of_ball(float3 mean, float log_scale) {
    return {mean, {log_scale, log_scale, log_scale}, {1.0f, 0.0f, 0.0f, 0.0f}, 0.0f};
}

__device__ inline bool project_row(Ball, const ProjectArgs& a, uint32_t row, EllipseSplat& splat,
                                   Rect& pixels) {
    const float* __restrict__ table = a.geometry;
    const uint64_t at = lane_block(row, BALL_WIDTH);
    const float log_scale = table[at + component(BALL_RADIUS)];
    const float logit = table[at + component(BALL_OPACITY)];
    const Shape shape = shape_of_ball(load_triple(table, at, MEAN), log_scale);
    splat.color = load_triple(table, at, BALL_COLOR);
    if (!in_front(camera_from_world(a.camera, shape.mean_world).z, a.camera.near)) return false;
    if (!isfinite(logit) || !isfinite(log_scale) || !is_finite(splat.color)) return false;
    if (!ellipse<true>(a.camera, chain<true>(a.camera, shape), splat.ellipse)) return false;
    splat.opacity = sigmoid(logit) * splat.ellipse.kept;
    return bounds(splat.ellipse, splat.opacity, a.camera.size, pixels, splat.exponent_min);
}

extern "C" __global__ void __launch_bounds__(PROJECT_BLOCK)
    project_balls(const __grid_constant__ ProjectArgs a) {
    project<Ball>(a);
}

// Gradients of a row's values.
struct BallGradient {
    float d[BALL_WIDTH];
};

// Adds a share of what a view that sees the ball gives it.
__device__ inline void add_view(const ViewArgs& view, float share, const AdamRow<BALL_WIDTH>& row,
                                const ScreenGradient& d_splat, BallGradient& sum) {
    const float3 mean = {row.value[0], row.value[1], row.value[2]};
    const ShapeGradient d = project_bwd<true>(
        view.camera, shape_of_ball(mean, row.value[BALL_RADIUS]), d_splat.d_ellipse);
    const float d_radius = d.d_log_scale.x + d.d_log_scale.y + d.d_log_scale.z;
    // d ln(opacity) / d logit is 1 - opacity, whatever the filter leaves of it.
    const float d_logit =
        d_splat.d_ellipse.d_log_kept * (1.0f - sigmoid(row.value[BALL_OPACITY]));
    const float of_view[BALL_WIDTH] = {d.d_mean_world.x,  d.d_mean_world.y,  d.d_mean_world.z,
                                       d_radius,          d_logit,           d_splat.d_color.x,
                                       d_splat.d_color.y, d_splat.d_color.z};
#pragma unroll
    for (uint32_t k = 0; k < BALL_WIDTH; ++k) sum.d[k] += share * of_view[k];
}

__device__ inline FullRow<BALL_WIDTH> state_of(Ball, const AdamArgs& a, uint32_t row) {
    return FullRow<BALL_WIDTH>(a, row);
}

// All values are in the row, and no colour depends on the place.
__device__ inline float3 step_appearance(Ball, const AdamArgs&, uint32_t, bool,
                                         const FullRow<BALL_WIDTH>&, const ScreenGradient&) {
    return {0.0f, 0.0f, 0.0f};
}

__device__ inline BallGradient row_bwd(Ball, const AdamArgs& a, uint32_t, uint32_t splat_index,
                                       const AdamRow<BALL_WIDTH>& row,
                                       const ScreenGradient& d_splat, float3) {
    BallGradient d = {};
    if (splat_index != UNSEEN) add_view(a.views[0], 1.0f, row, d_splat, d);
    return d;
}

__device__ inline void step_row(Ball, const AdamArgs& a, uint32_t number,
                                const FullRow<BALL_WIDTH>& state, AdamRow<BALL_WIDTH>& row,
                                const BallGradient& gradient) {
    FiniteCheck health[4] = {};
#pragma unroll
    for (uint32_t k = 0; k < BALL_WIDTH; ++k) {
        const uint32_t column = k < BALL_RADIUS ? 0 : k < BALL_OPACITY ? 1 : k < BALL_COLOR ? 2 : 3;
        move<false>(a, row, k, a.rates[column], gradient.d[k], health[column]);
    }
    state.store(row, 0);
#pragma unroll
    for (uint32_t column = 0; column < 4; ++column) report(a, number, column, health[column]);
}

extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    step_balls(const __grid_constant__ AdamArgs a) {
    step<Ball>(a);
}

// Down the mean gradient of several views.
extern "C" __global__ void __launch_bounds__(ADAM_BLOCK)
    step_balls_views(const __grid_constant__ AdamArgs a) {
    const uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row / WARP * WARP >= a.gaussians) return;
    const FullRow<BALL_WIDTH> state = state_of(Ball{}, a, row);
    AdamRow<BALL_WIDTH> values = state.load();
    BallGradient sum = {};
    for (uint32_t v = 0; v < a.view_count; ++v) {
        const ViewArgs& view = a.views[v];
        const uint32_t splat_index = row < a.gaussians ? view.splat_from_gaussian[row] : UNSEEN;
        if (splat_index == UNSEEN) continue;
        add_view(view, a.view_share, values, gradient_of(Ball{}, view, splat_index), sum);
    }
    step_row(Ball{}, a, row, state, values, sum);
}
