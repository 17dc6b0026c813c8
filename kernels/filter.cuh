// Twin of math/filter.rs: the filters of Mip-Splatting (Yu et al. 2024), the share of the opacity that a Gaussian keeps
// through them, and their gradients. See Rust for the equations.
#pragma once

#include "abi.cuh"
#include "linalg.cuh"

// Share kept by the screen filter; `det` and `widened` are determinants of covariances, px^4.
__device__ inline float kept_on_screen(float det, float widened) {
    if (!(det > DET_MIN_PX4 && widened > DET_MIN_PX4)) return 0.0f;
    return sqrtf(det / (widened + DET_MIN_PX4) + DET_MIN_PX4);
}

// Returns the gradients of both determinants from that of the share's logarithm.
__device__ inline float2 kept_on_screen_bwd(float det, float widened, float d_log_kept) {
    if (!(det > DET_MIN_PX4 && widened > DET_MIN_PX4)) return {0.0f, 0.0f};
    const float inverse = 1.0f / (widened + DET_MIN_PX4);
    const float d_det = 0.5f * d_log_kept / (det * inverse + DET_MIN_PX4) * inverse;
    return {d_det, -d_det * det * inverse};
}

// Applies a 3D filter of this standard deviation to scales; `kept` is the share of the opacity that remains.
__device__ inline float3 smoothed(float3 scale, float smoothing, float& kept) {
    kept = 1.0f;
    const float variance = smoothing * smoothing;
    if (!(variance > 0.0f)) return scale;
    const float3 wide = {sqrtf(scale.x * scale.x + variance), sqrtf(scale.y * scale.y + variance),
                         sqrtf(scale.z * scale.z + variance)};
    kept = scale.x / wide.x * (scale.y / wide.y) * (scale.z / wide.z);
    return wide;
}

// Returns one axis of the gradient of the log-scales.
__device__ inline float smoothed_axis_bwd(float wide, float smoothing, float d_log_wide,
                                          float d_log_kept) {
    const float share = smoothing / wide;
    const float lost = share * share;
    return d_log_wide * (1.0f - lost) + d_log_kept * lost;
}

__device__ inline float3 smoothed_bwd(float3 wide, float smoothing, float3 d_log_wide,
                                      float d_log_kept) {
    if (!(smoothing * smoothing > 0.0f)) return d_log_wide;
    return {smoothed_axis_bwd(wide.x, smoothing, d_log_wide.x, d_log_kept),
            smoothed_axis_bwd(wide.y, smoothing, d_log_wide.y, d_log_kept),
            smoothed_axis_bwd(wide.z, smoothing, d_log_wide.z, d_log_kept)};
}

// Returns the opacity logit that limits the opacity to `ceiling` for a Gaussian that keeps this share.
__device__ inline float lowered_logit(float logit, float kept, float ceiling) {
    if (!(sigmoid(logit) * kept > ceiling)) return logit;
    const float opacity = ceiling / kept;
    return logf(opacity / (1.0f - opacity));
}
