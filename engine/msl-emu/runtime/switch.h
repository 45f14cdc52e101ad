// A context switch between stacks: saves what the callee must keep, swaps stack pointers.
#pragma once

extern "C" void emu_switch(void** from, void* to);
/// Stack pointer to switch to so that `body` starts on the stack that ends at `top`; `body` must not return.
void* emu_fresh_stack(void* top, void (*body)());
