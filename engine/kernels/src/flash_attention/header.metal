#include <metal_simdgroup_matrix>
