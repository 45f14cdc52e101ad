//! What is not emulated does not compile, and the message says what and where.

use mlx_parity_msl_emu::{Kernel, Launch, Mode, Output, Source, run};
use mlx_parity_tensor::Dtype;

use crate::support::options;

/// A line that must not compile, and what the message must name.
const LINES: [(&str, &str); 10] = [
    ("double wide = 1;", "double"),
    ("texture2d<float> image;", "texture2d"),
    ("const float y = simd_median(1.0f);", "simd_median"),
    ("const float y = erf(1.0f);", "erf"),
    ("simdgroup_matrix<float, 4, 4> small;", "8 by 8"),
    ("atomic<half> count;", "atomic<T>"),
    ("float4x4 matrix;", "float4x4"),
    ("const float y = float4(1).xyq;", "xyq"),
    ("const float4 v = half4(1.0h);", "vec<float"),
    ("bfloat y = 1.0f;", "bfloat"),
];

#[test]
fn what_is_missing_is_named_with_its_line() {
    for (line, name) in LINES {
        let body = format!("// a comment\n{line}\nout[0] = 1.0f;");
        let mut kernel = Kernel::new("probe", Source::new("probe.metal", body), &[], &["out"]);
        kernel.header = Source::new("header", "#include <metal_simdgroup_matrix>\n");
        let launch = Launch {
            inputs: Vec::new(),
            outputs: vec![Output { dtype: Dtype::F32, shape: vec![1] }],
            template: Vec::new(),
            grid: [1, 1, 1],
            group: [1, 1, 1],
            init_value: None,
        };
        let outcome = run(&kernel, &launch, &options(Mode::Fibers));
        let message = outcome.expect_err(line).to_string();
        assert!(message.contains(name), "{line}: {message}");
        assert!(message.contains("probe.metal:2"), "{line}: {message}");
    }
}
