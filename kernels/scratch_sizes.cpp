// scratch_sizes: asks CUB, as cub.cu calls it, how much scratch it wants; no GPU is needed.
// It is linked with the library's own host code and, in place of the CUDA runtime, with the few functions
// below, which describe one GPU of the architecture in question. CUB's dispatch then picks the policy of
// that architecture and, without scratch, answers with a size. With scratch it would launch kernels: here
// these do nothing, and CUB says which of its two buffers holds the result.
//
// Sizes are staircases over the number of values. Prints, as Rust, the pieces of each: up to `until`
// values it wants `base + rise * ceil(n / step)` bytes. Each answer is checked at many random numbers.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <random>
#include <vector>

extern "C" {

int splat_sort_u32_u32(void*, size_t*, uint32_t* const[2], uint32_t* const[2], uint32_t, int, int, int*,
                       cudaStream_t);
int splat_sort_u16_u32(void*, size_t*, uint16_t* const[2], uint32_t* const[2], uint32_t, int, int, int*,
                       cudaStream_t);
int splat_inclusive_sum_u32(void*, size_t*, uint32_t*, uint32_t, cudaStream_t);
int splat_inclusive_sum_u64(void*, size_t*, uint64_t*, uint32_t, cudaStream_t);
int splat_exclusive_sum_u32(void*, size_t*, const uint32_t*, uint32_t*, uint32_t, cudaStream_t);
int splat_exclusive_sum_ordered_u32(void*, size_t*, const uint32_t*, const uint32_t*, uint32_t*, uint32_t,
                                    cudaStream_t);

}  // extern "C"

namespace {

// The largest GPU of an architecture. Only sorts of 16-bit keys before 9.0 ask for it: they want as much
// as all of its blocks that can be there at once, whatever the number of values.
struct Gpu {
    int arch, multiprocessors, threads, blocks;  // the last two of each multiprocessor
};

constexpr Gpu GPUS[] = {
    {75, 72, 1024, 16},   {80, 128, 2048, 32}, {86, 84, 1536, 16},  {87, 16, 1536, 16},  {88, 16, 1536, 16},
    {89, 144, 1536, 24},  {90, 144, 2048, 32}, {100, 160, 2048, 32}, {103, 160, 2048, 32}, {110, 20, 1536, 24},
    {120, 192, 1536, 24}, {121, 48, 1536, 24},
};

Gpu gpu{};

// What every pointer that is not null points to: nothing is ever read there.
alignas(256) char nothing[256];

}  // namespace

extern "C" {

void** __cudaRegisterFatBinary(void*) { return reinterpret_cast<void**>(nothing); }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void*) {
    *kernel = reinterpret_cast<cudaKernel_t>(nothing);
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaSuccess; }

cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
    switch (attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = gpu.arch / 10; return cudaSuccess;
        case cudaDevAttrComputeCapabilityMinor: *value = gpu.arch % 10; return cudaSuccess;
        case cudaDevAttrMultiProcessorCount: *value = gpu.multiprocessors; return cudaSuccess;
        case cudaDevAttrMaxGridDimX: *value = INT32_MAX; return cudaSuccess;
        default: return cudaErrorInvalidValue;
    }
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    *attributes = {};
    attributes->ptxVersion = gpu.arch;
    attributes->binaryVersion = gpu.arch;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t,
                                                                  unsigned) {
    // Registers and shared memory may allow fewer.
    const int fitting = gpu.threads / threads;
    *blocks = fitting < gpu.blocks ? fitting : gpu.blocks;
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**) { return cudaSuccess; }
cudaError_t cudaMemcpyAsync(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaMemsetAsync(void*, int, size_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "an error"; }

}  // extern "C"

namespace {

struct Answer {
    uint64_t bytes;
    bool in_second;
    bool operator==(const Answer& other) const { return bytes == other.bytes && in_second == other.in_second; }
};

[[noreturn]] void fail(const char* what, uint64_t n) {
    std::fprintf(stderr, "CUB's scratch for %s of %llu values: no answer, or no staircase\n", what,
                 static_cast<unsigned long long>(n));
    std::exit(1);
}

enum class Call { Sort16, Sort32, InclusiveSum, ExclusiveSum, OrderedSum, WideSum };

struct Question {
    Call call;
    int bits;
    const char* name;

    int make(void* temp, size_t* bytes, uint32_t n, int* half) const {
        auto* const words = reinterpret_cast<uint32_t*>(nothing);
        auto* const halves = reinterpret_cast<uint16_t*>(nothing);
        auto* const wide = reinterpret_cast<uint64_t*>(nothing);
        uint32_t* const values[2] = {words, words};
        uint16_t* const narrow[2] = {halves, halves};
        switch (call) {
            case Call::Sort16: return splat_sort_u16_u32(temp, bytes, narrow, values, n, 0, bits, half, nullptr);
            case Call::Sort32: return splat_sort_u32_u32(temp, bytes, values, values, n, 0, bits, half, nullptr);
            case Call::InclusiveSum: return splat_inclusive_sum_u32(temp, bytes, words, n, nullptr);
            case Call::ExclusiveSum: return splat_exclusive_sum_u32(temp, bytes, words, words, n, nullptr);
            case Call::OrderedSum:
                return splat_exclusive_sum_ordered_u32(temp, bytes, words, words, words, n, nullptr);
            case Call::WideSum: return splat_inclusive_sum_u64(temp, bytes, wide, n, nullptr);
        }
        return 1;
    }

    Answer ask(uint64_t n) const {
        size_t bytes = 0;
        int half = 0;
        if (make(nullptr, &bytes, static_cast<uint32_t>(n), &half) != 0) fail(name, n);
        const uint64_t wanted = bytes;
        if (make(nothing, &bytes, static_cast<uint32_t>(n), &half) != 0) fail(name, n);
        return {wanted, half != 0};
    }
};

constexpr uint64_t MOST = UINT32_MAX;

// Up to `until` values: `base + rise * ceil(n / step)` bytes.
struct Piece {
    uint64_t until;
    int64_t base;
    uint64_t step, rise;
    bool in_second;

    Answer at(uint64_t n) const {
        return {static_cast<uint64_t>(base) + rise * ((n + step - 1) / step), in_second};
    }
    bool operator==(const Piece& o) const {
        return until == o.until && base == o.base && step == o.step && rise == o.rise && in_second == o.in_second;
    }
};

// The largest number from `n` on, up to `limit`, for which `holds` does, which it does for `n`.
template <typename Holds>
uint64_t last(uint64_t n, uint64_t limit, Holds holds) {
    uint64_t good = n, stride = 1;
    while (good + stride <= limit && holds(good + stride)) {
        good += stride;
        stride *= 2;
    }
    for (; stride > 0; stride /= 2) {
        while (good + stride <= limit && holds(good + stride)) good += stride;
    }
    return good;
}

// The piece that begins at `n`.
Piece piece_from(const Question& question, uint64_t n) {
    const auto level = [&](uint64_t from) {
        const Answer answer = question.ask(from);
        return last(from, MOST, [&](uint64_t at) { return question.ask(at) == answer; });
    };
    const Answer first = question.ask(n);
    const uint64_t flat_until = level(n);
    const Piece flat{flat_until, static_cast<int64_t>(first.bytes), 1, 0, first.in_second};
    if (flat_until == MOST) return flat;
    const uint64_t second_until = level(flat_until + 1);
    const Answer second = question.ask(second_until);
    const uint64_t step = second_until - flat_until;
    if (second.in_second != first.in_second || second.bytes < first.bytes || flat_until % step != 0) return flat;
    const uint64_t rise = second.bytes - first.bytes;
    const auto base = static_cast<int64_t>(first.bytes) - static_cast<int64_t>(rise * (flat_until / step));
    Piece stairs{0, base, step, rise, first.in_second};
    if (base < 0 || !(stairs.at(n) == first)) return flat;
    // Step by step: beyond a portion of CUB's, other stairs may cross these.
    uint64_t whole = flat_until / step;
    const auto holds = [&](uint64_t at) { return question.ask(at) == stairs.at(at); };
    while ((whole + 1) * step <= MOST && holds(whole * step + 1) && holds((whole + 1) * step)) ++whole;
    stairs.until = whole * step;
    const uint64_t next = stairs.until + step;
    stairs.until = last(stairs.until, next < MOST ? next : MOST, holds);
    return stairs;
}

std::vector<Piece> pieces_of(const Question& question) {
    std::vector<Piece> pieces;
    for (uint64_t n = 1; n <= MOST; n = pieces.back().until + 1) {
        pieces.push_back(piece_from(question, n));
        if (pieces.size() > 64) fail(question.name, n);
    }
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; ++i) {
        const uint64_t n = 1 + (random() & MOST) % (uint64_t{1} << (1 + random() % 32));
        if (n > MOST) continue;
        const Piece* piece = pieces.data();
        while (piece->until < n) ++piece;
        if (!(piece->at(n) == question.ask(n))) fail(question.name, n);
    }
    return pieces;
}

void print(const std::vector<Piece>& pieces, const char* indent) {
    std::printf("&[");
    for (const Piece& p : pieces) {
        std::printf("\n%s    stairs(%llu, %lld, %llu, %llu, %s),", indent, static_cast<unsigned long long>(p.until),
                    static_cast<long long>(p.base), static_cast<unsigned long long>(p.step),
                    static_cast<unsigned long long>(p.rise), p.in_second ? "true" : "false");
    }
    std::printf("\n%s]", indent);
}

void print_sort(const char* name, Call call, int key_bits) {
    std::vector<std::vector<Piece>> curves;
    for (int bits = 1; bits <= key_bits; ++bits) curves.push_back(pieces_of({call, bits, name}));
    std::printf("            &[\n");
    for (int bits = 1; bits <= key_bits; ++bits) {
        if (bits < key_bits && curves[bits - 1] == curves[bits]) continue;
        std::printf("                (%d, ", bits);
        print(curves[bits - 1], "                ");
        std::printf("),\n");
    }
    std::printf("            ],\n");
}

}  // namespace

int main(int count, char** arguments) {
    const int arch = count == 2 ? std::atoi(arguments[1]) : 0;
    for (const Gpu& known : GPUS) {
        if (known.arch == arch) gpu = known;
    }
    if (gpu.arch == 0) {
        std::fprintf(stderr, "architecture %d is not in the list of GPUs\n", arch);
        return 1;
    }
    std::printf("    library(\n        %d,\n        [\n", arch);
    print_sort("sort16", Call::Sort16, 16);
    print_sort("sort32", Call::Sort32, 32);
    const std::vector<Piece> sum = pieces_of({Call::InclusiveSum, 0, "sum32"});
    // The table has one row for all sums of 32 bits.
    if (!(pieces_of({Call::ExclusiveSum, 0, "exclusive sum32"}) == sum) ||
        !(pieces_of({Call::OrderedSum, 0, "ordered sum32"}) == sum)) {
        std::fprintf(stderr, "sums of 32 bits want different scratch\n");
        return 1;
    }
    std::printf("        ],\n        [\n            ");
    print(sum, "            ");
    std::printf(",\n            ");
    print(pieces_of({Call::WideSum, 0, "sum64"}), "            ");
    std::printf(",\n        ],\n    ),\n");
    return 0;
}
