// Keeps the GPU busy for some clock cycles, so that the host gets ahead before an interval that is timed by events.
extern "C" __global__ void busy(long long cycles) {
    const long long began = clock64();
    while (clock64() - began < cycles) {}
}
