// Twin of math/adam.rs: size of the triangles around a vertex.
#pragma once

#include "linalg.cuh"

// Returns the area of a triangle, world units squared.
__device__ inline float area(const float3 (&corners)[3]) {
    const float3 normal = cross(sub(corners[1], corners[0]), sub(corners[2], corners[0]));
    return 0.5f * sqrtf(dot(normal, normal));
}

// Returns the log-size of a vertex from the sum of the areas of its triangles and their number.
__device__ inline float log_size(float sum, float count) {
    return count > 0.0f ? 0.5f * logf(fmaxf(sum / count, AREA_MIN)) : 0.0f;
}
