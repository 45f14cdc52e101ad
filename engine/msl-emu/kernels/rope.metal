// Rotary position embedding (Su et al., 2021) of pairs (i, i + d / 2), with a first position for each item.
// x [batch, heads, tokens, d] of T, offsets [batch] of int32, base [] of float; out as x.
// Grid: d / 2, tokens, batch · heads.
const uint heads = x_shape[1];
const uint tokens = x_shape[2];
const uint width = x_shape[3];
const uint pair = thread_position_in_grid.x;
const uint token = thread_position_in_grid.y;
const uint head = thread_position_in_grid.z;
const float position = float(offsets[head / heads] + int(token));
const float angle = position * exp2(-log2(base) * float(2 * pair) / float(width));
const uint at = (head * tokens + token) * width + pair;
const float first = float(x[at]);
const float second = float(x[at + width / 2]);
out[at] = T(first * cos(angle) - second * sin(angle));
out[at + width / 2] = T(first * sin(angle) + second * cos(angle));
