// transmittance: transmittance between a view's camera and points.
//
// One thread per point, over the list of the tile that the point projects to. Points are in the order of their
// Gaussians, which are in Morton order, so that the lists of a warp are nearly equal. A thread stops when hardly any
// light is left, which is soon for points inside objects.
//
// Shapes: rays [visible, 16], splat_from_instance [instances], ranges [tiles], places [places, 3],
// transmittances [places].

#include "lookup.cuh"
#include "transmittance.cuh"

extern "C" __global__ void __launch_bounds__(TRANSMITTANCE_BLOCK)
    transmittances(const __grid_constant__ TransmittanceArgs a) {
    const float4* __restrict__ rays = reinterpret_cast<const float4*>(a.rays);
    const uint32_t* __restrict__ splat_from_instance = a.splat_from_instance;
    const uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= a.count) return;
    const float* const own = a.places + uint64_t{index} * 3;
    const float3 place = camera_from_world(a.camera, float3{own[0], own[1], own[2]});
    float2 at_px;
    if (!place_px(a.camera, place, at_px)) {
        a.transmittances[index] = NOT_SEEN;
        return;
    }
    const uint32_t column = min(static_cast<uint32_t>(at_px.x), a.camera.size[0] - 1) / TILE;
    const uint32_t row = min(static_cast<uint32_t>(at_px.y), a.camera.size[1] - 1) / TILE;
    if (row < a.first_row || row >= a.end_row) return;

    constexpr float DARK = TRANSMITTANCE_MIN * TRANSMITTANCE_MIN;
    const TileRange range = a.ranges[row * a.camera.tiles[0] + column];
    const float2 slopes = {place.x / place.z, place.y / place.z};
    float squared = 1.0f;
    for (uint32_t instance = range.start; instance < range.end && squared >= DARK; ++instance) {
        const uint64_t splat_index = splat_from_instance[instance];
        const OnRay met = on_ray(load_ray(rays + splat_index * RAY_QUADS), slopes);
        if (is_met(met)) squared *= squared_transmittance(met, place.z);
    }
    a.transmittances[index] = squared >= DARK ? sqrtf(squared) : 0.0f;
}
