// rays: the Gaussians that a view sees, as its rays meet them.
// One thread per Gaussian. Shapes: geometry [lane blocks, 11, 32], rays [visible, 16].

#include "primitive.cuh"
#include "transmittance.cuh"

extern "C" __global__ void __launch_bounds__(RAYS_BLOCK)
    ray_gaussians(const __grid_constant__ RaysArgs a) {
    const float* __restrict__ geometry = a.geometry;
    const uint32_t gaussian = blockIdx.x * blockDim.x + threadIdx.x;
    if (gaussian >= a.gaussians) return;
    const uint32_t splat_index = a.splat_from_gaussian[gaussian];
    if (splat_index == UNSEEN) return;
    const uint64_t at = lane_block(gaussian, GEOMETRY_WIDTH);
    const Shape shape = {load_triple(geometry, at, MEAN), load_triple(geometry, at, LOG_SCALE),
                         {geometry[at + component(QUAT)], geometry[at + component(QUAT + 1)],
                          geometry[at + component(QUAT + 2)], geometry[at + component(QUAT + 3)]},
                         a.filter_3d == nullptr ? 0.0f : a.filter_3d[gaussian]};
    const RayGaussian ray = ray_gaussian(a.camera, shape, geometry[at + component(OPACITY_LOGIT)]);
    float4* const quads = reinterpret_cast<float4*>(a.rays) + uint64_t{splat_index} * RAY_QUADS;
    quads[0] = ray.x;
    quads[1] = ray.y;
    quads[2] = ray.z;
    quads[3] = {ray.opacity, 0.0f, 0.0f, 0.0f};
}
