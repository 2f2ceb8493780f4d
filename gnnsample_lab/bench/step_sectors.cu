// One memory instruction of one warp, repeated from a recorded step (gnnsample_lab/steps), so that Nsight Compute can
// count its sectors. Where the lanes reach comes as an argument, that is from constant memory: nothing else is read.
//
// KIND: 0 load, 1 store, 2 atomic. BYTES: of the word. Shapes: one block of 32 threads. Bound: nothing; it is counted.
// @variants KIND=0,1,2 BYTES=4,8
typedef unsigned int u32;
typedef unsigned long long u64;

#if BYTES == 4
typedef u32 Word;
#define TYPE "u32"
#define REGISTER "r"
#else
typedef u64 Word;
#define TYPE "u64"
#define REGISTER "l"
#endif

struct Reach {
    u32 at[32];  // bytes from `memory`; all ones where the lane takes no part
};

extern "C" __global__ void __launch_bounds__(32) repeat(const __grid_constant__ Reach reach, unsigned char* memory) {
    const u32 at = reach.at[threadIdx.x];
    if (at == ~0u) return;
    Word value = 0;
#if KIND == 0
    asm volatile("ld.global." TYPE " %0, [%1];" : "=" REGISTER(value) : "l"(memory + at) : "memory");
    // A load that nobody uses is left out of the machine code. No recorded memory holds this word.
    if (value == (Word)0x9E3779B97F4A7C15ull) *(Word*)memory = 0;
#elif KIND == 1
    asm volatile("st.global." TYPE " [%1], %0;" ::REGISTER(value), "l"(memory + at) : "memory");
#else
    asm volatile("atom.global.add." TYPE " %0, [%1], %2;" : "=" REGISTER(value) : "l"(memory + at), REGISTER(value) : "memory");
#endif
}
