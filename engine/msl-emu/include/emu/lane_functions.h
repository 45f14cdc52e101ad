// The functions that simdgroups and quadgroups share (MSL 6.9.2 and 6.9.3). Included twice, with
// EMU_LANES(name), the name with its prefix, and EMU_WIDTH, the number of lanes, defined.

#define EMU_TEXT_(x) #x
#define EMU_TEXT(x) EMU_TEXT_(x)
#define EMU_SITE(name) emu::Site site = emu::here(EMU_TEXT(EMU_LANES(name)))

namespace metal {

#define EMU_REDUCTION(name, expression)                                                            \
  template <class T>                                                                               \
  inline T EMU_LANES(name)(T data, EMU_SITE(name)) {                                               \
    return emu::Lanes<T, EMU_WIDTH>(data, site).fold([](T x, T y) { return static_cast<T>(expression); }); \
  }
EMU_REDUCTION(sum, x + y)
EMU_REDUCTION(product, x * y)
EMU_REDUCTION(max, max(x, y))
EMU_REDUCTION(min, min(x, y))
EMU_REDUCTION(and, x & y)
EMU_REDUCTION(or, x | y)
EMU_REDUCTION(xor, x ^ y)
#undef EMU_REDUCTION

#define EMU_PREFIX(name, identity, expression)                                                     \
  template <class T>                                                                               \
  inline T EMU_LANES(prefix_exclusive_##name)(T data, EMU_SITE(prefix_exclusive_##name)) {         \
    return emu::Lanes<T, EMU_WIDTH>(data, site).fold_below(T(identity), [](T x, T y) { return static_cast<T>(expression); }); \
  }                                                                                                \
  template <class T>                                                                               \
  inline T EMU_LANES(prefix_inclusive_##name)(T data, EMU_SITE(prefix_inclusive_##name)) {         \
    const emu::Lanes<T, EMU_WIDTH> lanes(data, site);                                              \
    const T x = lanes.fold_below(T(identity), [](T x, T y) { return static_cast<T>(expression); }); \
    const T y = data;                                                                              \
    return static_cast<T>(expression);                                                             \
  }
EMU_PREFIX(sum, 0, x + y)
EMU_PREFIX(product, 1, x * y)
#undef EMU_PREFIX

template <class T>
inline T EMU_LANES(shuffle)(T data, ushort lane, EMU_SITE(shuffle)) {
  return emu::Lanes<T, EMU_WIDTH>(data, site).at(lane);
}
template <class T>
inline T EMU_LANES(shuffle_xor)(T data, ushort mask, EMU_SITE(shuffle_xor)) {
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.at(lanes.mine ^ mask);
}
template <class T>
inline T EMU_LANES(broadcast)(T data, ushort lane, EMU_SITE(broadcast)) {
  emu::require_uniform<EMU_WIDTH>(lane, "the lane to broadcast differs between lanes", site);
  return emu::Lanes<T, EMU_WIDTH>(data, site).at(lane);
}
template <class T>
inline T EMU_LANES(broadcast_first)(T data, EMU_SITE(broadcast_first)) {
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.at(unsigned(__builtin_ctz(lanes.active)));
}

// Lanes move up or down by delta; those that would come from outside keep their own value.
template <class T>
inline T EMU_LANES(shuffle_up)(T data, ushort delta, EMU_SITE(shuffle_up)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.mine < delta ? data : lanes.at(lanes.mine - delta);
}
template <class T>
inline T EMU_LANES(shuffle_down)(T data, ushort delta, EMU_SITE(shuffle_down)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.mine + delta >= EMU_WIDTH ? data : lanes.at(lanes.mine + delta);
}
template <class T>
inline T EMU_LANES(shuffle_rotate_up)(T data, ushort delta, EMU_SITE(shuffle_rotate_up)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.at((lanes.mine - delta) % EMU_WIDTH);
}
template <class T>
inline T EMU_LANES(shuffle_rotate_down)(T data, ushort delta, EMU_SITE(shuffle_rotate_down)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site);
  return lanes.at((lanes.mine + delta) % EMU_WIDTH);
}

// The same, but what comes from outside are the lanes of `filling`: its last for up, its first for down.
template <class T>
inline T EMU_LANES(shuffle_and_fill_up)(T data, T filling, ushort delta, EMU_SITE(shuffle_and_fill_up)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site), fill(filling, site);
  return lanes.mine < delta ? fill.at((lanes.mine - delta) % EMU_WIDTH) : lanes.at(lanes.mine - delta);
}
template <class T>
inline T EMU_LANES(shuffle_and_fill_down)(T data, T filling, ushort delta, EMU_SITE(shuffle_and_fill_down)) {
  emu::require_uniform<EMU_WIDTH>(delta, "delta differs between lanes", site);
  const emu::Lanes<T, EMU_WIDTH> lanes(data, site), fill(filling, site);
  return lanes.mine + delta >= EMU_WIDTH ? fill.at((lanes.mine + delta) % EMU_WIDTH) : lanes.at(lanes.mine + delta);
}

inline EMU_LANES(vote) EMU_LANES(ballot)(bool expression, EMU_SITE(ballot)) {
  const emu::Lanes<bool, EMU_WIDTH> lanes(expression, site);
  uint mask = 0;
  for (uint i = 0; i < EMU_WIDTH; i++) mask |= lanes.has(i) && lanes.lane[i].get() ? 1u << i : 0u;
  return EMU_LANES(vote)(mask);
}
inline bool EMU_LANES(all)(bool expression, EMU_SITE(all)) {
  return emu::Lanes<bool, EMU_WIDTH>(expression, site).fold([](bool x, bool y) { return x && y; });
}
inline bool EMU_LANES(any)(bool expression, EMU_SITE(any)) {
  return emu::Lanes<bool, EMU_WIDTH>(expression, site).fold([](bool x, bool y) { return x || y; });
}
inline bool EMU_LANES(is_first)(EMU_SITE(is_first)) {
  const emu::Lanes<bool, EMU_WIDTH> lanes(true, site);
  return lanes.mine == unsigned(__builtin_ctz(lanes.active));
}
inline bool EMU_LANES(is_helper_thread)() { return false; }
inline EMU_LANES(vote) EMU_LANES(active_threads_mask)(EMU_SITE(active_threads_mask)) {
  return EMU_LANES(vote)(emu::Lanes<bool, EMU_WIDTH>(true, site).active);
}

}  // namespace metal

#undef EMU_SITE
#undef EMU_TEXT
#undef EMU_TEXT_
#undef EMU_LANES
#undef EMU_WIDTH
