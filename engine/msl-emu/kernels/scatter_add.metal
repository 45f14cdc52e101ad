// out[indices[i]] += updates[i], where several i may name one place.
// indices [n] of uint32, updates [n] of float; out [places] of float, atomic, zero at first. Grid: n.
const uint i = thread_position_in_grid.x;
atomic_fetch_add_explicit(&out[indices[i]], updates[i], memory_order_relaxed);
