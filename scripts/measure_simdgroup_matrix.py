"""Measure which lane holds which element of an 8x8 SIMD-group matrix, on this Mac's GPU.

Apple's documents do not state the positions that ``tvm_tilex.layout.atoms`` carries. This
compiles a small Objective-C host with the command-line tools, lets the system compile the kernel
text, reads every lane's ``thread_elements()`` back and compares. Exit code 0 where all agree.

    python scripts/measure_simdgroup_matrix.py
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tvm_tilex.layout.atoms import SIMDGROUP_8X8_F16, SIMDGROUP_8X8_F32, InstructionAtom

METAL_TYPES = {"float32": "float", "float16": "half"}

KERNEL = """
#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;
kernel void positions(device const TYPE* numbers [[buffer(0)]], device float* held [[buffer(1)]],
                      uint lane [[thread_index_in_simdgroup]]) {
  simdgroup_matrix<TYPE, 8, 8> matrix;
  simdgroup_load(matrix, numbers, 8);
  held[2 * lane] = float(matrix.thread_elements()[0]);
  held[2 * lane + 1] = float(matrix.thread_elements()[1]);
}
kernel void fill(device TYPE* numbers [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  numbers[i] = TYPE(i);
}
"""

HOST = """
#import <Foundation/Foundation.h>
#import <Metal/Metal.h>
static void fail(NSString *what) { fprintf(stderr, "%s\\n", what.UTF8String); exit(3); }
int main(int count, char **words) { @autoreleasepool {
  id<MTLDevice> device = MTLCreateSystemDefaultDevice();
  if (!device) fail(@"no Metal device");
  NSError *error = nil;
  NSString *text = [NSString stringWithContentsOfFile:[NSString stringWithUTF8String:words[1]]
                                             encoding:NSUTF8StringEncoding error:&error];
  id<MTLLibrary> library = [device newLibraryWithSource:text options:nil error:&error];
  if (!library) fail(error.localizedDescription);
  id<MTLBuffer> numbers = [device newBufferWithLength:256 options:MTLResourceStorageModeShared];
  id<MTLBuffer> held = [device newBufferWithLength:256 options:MTLResourceStorageModeShared];
  id<MTLCommandQueue> queue = [device newCommandQueue];
  for (NSString *name in @[@"fill", @"positions"]) {
    id<MTLFunction> function = [library newFunctionWithName:name];
    id<MTLComputePipelineState> state =
        [device newComputePipelineStateWithFunction:function error:&error];
    if (!state) fail(error.localizedDescription);
    id<MTLCommandBuffer> commands = [queue commandBuffer];
    id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
    [encoder setComputePipelineState:state];
    [encoder setBuffer:numbers offset:0 atIndex:0];
    [encoder setBuffer:held offset:0 atIndex:1];
    NSUInteger threads = [name isEqualToString:@"fill"] ? 64 : 32;
    [encoder dispatchThreadgroups:MTLSizeMake(1, 1, 1)
            threadsPerThreadgroup:MTLSizeMake(threads, 1, 1)];
    [encoder endEncoding];
    [commands commit];
    [commands waitUntilCompleted];
    if (commands.status != MTLCommandBufferStatusCompleted) fail(@"the GPU refused the kernel");
  }
  fprintf(stderr, "%s\\n", device.name.UTF8String);
  for (int i = 0; i < 64; ++i) printf("%d\\n", (int)((float *)held.contents)[i]);
} return 0; }
"""


def measure(dtype: str, folder: Path) -> list[tuple[int, int]]:
    """Return (row, column) of slot ``i % 2`` of lane ``i // 2``, for i in [0, 64).

    Raises
    ------
    subprocess.CalledProcessError
        Where the host does not compile, or the device refuses the kernel.
    """
    (folder / "host.m").write_text(HOST, encoding="utf-8")
    kernel = folder / f"{dtype}.metal"
    kernel.write_text(KERNEL.replace("TYPE", METAL_TYPES[dtype]), encoding="utf-8")
    frameworks = [
        w for name in ("Foundation", "Metal", "CoreGraphics") for w in ("-framework", name)
    ]
    binary = folder / "host"
    compile_host = ["xcrun", "clang", "-fobjc-arc", folder / "host.m", "-o", binary, *frameworks]
    subprocess.run(compile_host, check=True)
    done = subprocess.run([binary, kernel], check=True, capture_output=True, text=True)
    print(f"{dtype} on {done.stderr.strip()}")
    return [divmod(int(line), 8) for line in done.stdout.split()]


def differences(atom: InstructionAtom, measured: list[tuple[int, int]]) -> list[str]:
    """Return one line for each (operand, lane, slot) whose measured position differs."""
    found = []
    for name, operand in atom.operands.items():
        for number, place in enumerate(measured):
            lane, slot = divmod(number, 2)
            expected = operand.map(lane, slot)
            if expected != place:
                found.append(f"{atom.name} {name} lane {lane} slot {slot}: {expected}, not {place}")
    return found


def main() -> int:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for atom in (SIMDGROUP_8X8_F32, SIMDGROUP_8X8_F16):
            dtype = atom.operands["A"].dtype
            wrong += differences(atom, measure(dtype, Path(folder)))
    print("\n".join(wrong) or "every measured position agrees with the atoms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
