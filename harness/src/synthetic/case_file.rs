//! The case file a synthetic model starts with.

/// A case of 41 prompt ids in chunks of 24 and 24 steps, over every lane.
///
/// The steps are given ids: the greedy text of a random model tends to go round in circles.
pub fn case_file(name: &str) -> String {
    format!(
        r#"# {name} with random weights, from goldens/synthetic/{name}.

[[case]]
name = "window"
model = "{name}"
lanes = ["f32", "bf16", "4bit"]
prompt = {{ drawn = {{ seed = 1, count = 65 }} }}
prefill-step = 24
decode = 24
decode-from = "prompt"
why = "every module of {name}, in chunks and step by step, past a window of 16"
"#
    )
}
