// rays: the visible Gaussians in a form for ray intersection, and its gradients.
// One thread per Gaussian. Shapes: geometry [lane blocks, 11, 32], rays and d_rays [visible, 16],
// d_geometry [gaussians, 12].

#include "primitive.cuh"
#include "transmittance.cuh"

__device__ inline Shape shape_of(const float* geometry, const float* filter_3d, uint32_t gaussian,
                                 uint64_t at) {
    return {load_triple(geometry, at, MEAN), load_triple(geometry, at, LOG_SCALE),
            {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
             geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]},
            filter_3d == nullptr ? 0.0f : filter_3d[gaussian]};
}

extern "C" __global__ void __launch_bounds__(RAYS_BLOCK)
    ray_gaussians(const __grid_constant__ RaysArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = shape_of(geometry, a.filter_3d, gaussian, at);
    const RayGaussian ray = ray_gaussian(a.camera, shape, geometry[at + component(OPACITY_LOGIT)]);
    float4* const quads = reinterpret_cast<float4*>(a.rays) + uint64_t{splat_index} * RAY_QUADS;
    quads[0] = ray.x;
    quads[1] = ray.y;
    quads[2] = ray.z;
    quads[3] = {ray.opacity, 0.0f, 0.0f, 0.0f};
}

extern "C" __global__ void __launch_bounds__(RAYS_BLOCK)
    ray_gaussians_bwd(const __grid_constant__ RaysBwdArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = shape_of(geometry, a.filter_3d, gaussian, at);
    const float4* const quads =
        reinterpret_cast<const float4*>(a.d_rays) + uint64_t{splat_index} * RAY_QUADS;
    const RayGaussianGradient d = {quads[0], quads[1], quads[2], quads[3].x};
    const RayGradient of = ray_gaussian_bwd(a.camera, shape, geometry[at + component(OPACITY_LOGIT)], d);
    float4* const row =
        reinterpret_cast<float4*>(a.d_geometry) + uint64_t{gaussian} * (SURFACE_WIDTH / 4);
    const float4 first = row[0], second = row[1], third = row[2];
    row[0] = {first.x + of.d_mean.x, first.y + of.d_mean.y, first.z + of.d_mean.z,
              first.w + of.d_log_scale.x};
    row[1] = {second.x + of.d_log_scale.y, second.y + of.d_log_scale.z, second.z + of.d_quat.w,
              second.w + of.d_quat.x};
    row[2] = {third.x + of.d_quat.y, third.y + of.d_quat.z, third.z + of.d_opacity_logit, third.w};
}
