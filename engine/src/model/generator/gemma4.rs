//! gemma4, from its config.

mod templates;

use self::templates::{ATTENTION, BODY, FEED_FORWARD, GATE, INPUTS, KEYS, LAYER};
use super::{Source, fill, literal};
use crate::config::{
    ConfigFile, Gemma4Layer, Gemma4TextConfig, KeyValues, LayerKind, PerLayerInput,
};
use crate::error::EngineError;
use crate::model::dedicated::gemma4::Names;

/// The network of a gemma4 config, without the head of the file.
pub(super) fn network(file: &ConfigFile) -> Result<Source, EngineError> {
    let (config, names) = match file.model_type()? {
        "gemma4_text" => (Gemma4TextConfig::read_text(file)?, Names::TEXT),
        _ => (Gemma4TextConfig::read(file)?, Names::MULTIMODAL),
    };
    if config.experts.is_some() {
        return Err(file.unsupported("enable_moe_block", true, "false: no network is generated"));
    }
    let mut text = literal::dims(&config.dims);
    for kind in [LayerKind::Full, LayerKind::Sliding] {
        if let Some(layer) = config.layers.iter().find(|layer| layer.kind == kind) {
            text += &literal::rope(file, rope_name(kind), &layer.rope)?;
        }
    }
    if donors(&config).next().is_some() {
        text += "\n/// What later layers attend to as well, and where the call began.\n\
                 type Kept = (crate::cache::Rows, crate::nn::Position);\n";
    }
    text += &body(&config, names);
    for i in 0..config.layers.len() {
        text += &layer(&config, names, i);
    }
    let mut parts = vec!["join", "split", "times", "turn"];
    if config.final_softcap.is_some() {
        parts.push("compiled_softcap");
    }
    if config.per_layer_input.is_some() {
        parts.extend(["layer_slice", "unflatten"]);
    }
    let load = "|file, weights, _| {\n\
                crate::model::dedicated::gemma4::sanitize(file, weights)?;\n\
                Ok(Box::new(Unrolled::load(weights)?))\n}";
    Ok(Source { parts, load, text })
}

fn rope_name(kind: LayerKind) -> &'static str {
    if kind == LayerKind::Full { "FULL_ROPE" } else { "SLIDING_ROPE" }
}

fn mask_name(kind: LayerKind) -> &'static str {
    if kind == LayerKind::Full { "full" } else { "sliding" }
}

/// The layers that others share keys and values with.
fn donors(config: &Gemma4TextConfig) -> impl Iterator<Item = usize> {
    config.layers.iter().filter_map(|layer| match layer.key_values {
        KeyValues::Shared(donor) => Some(donor),
        _ => None,
    })
}

fn own(config: &Gemma4TextConfig) -> impl Iterator<Item = &Gemma4Layer> {
    config.layers.iter().filter(|layer| !matches!(layer.key_values, KeyValues::Shared(_)))
}

fn body(config: &Gemma4TextConfig, names: Names) -> String {
    let dims = &config.dims;
    let count = config.layers.len();
    let inputs = config.per_layer_input;
    let each = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let table = format!("[{}, {}]", literal::size(dims.vocab_size), dims.hidden_size);
    let head = match (config.tied, config.final_softcap) {
        (true, None) => "self.embed_tokens.as_linear(&h)?".to_owned(),
        (false, None) => "self.lm_head.forward(&h)?".to_owned(),
        (tied, Some(cap)) => {
            let linear = if tied { "self.embed_tokens.as_linear" } else { "self.lm_head.forward" };
            format!("compiled_softcap(&{linear}(&h)?, {})?", literal::number(cap))
        }
    };
    let lm_head = format!("lm_head: weights.linear({:?}, {table}, false)?,", names.head());
    let shapes: Vec<String> =
        own(config).map(|layer| format!("[{}, {}]", layer.kv_heads, layer.head_dim)).collect();
    let (input_fields, input_loads, input_steps) = match inputs {
        Some(inputs) => per_layer_inputs(config, names, inputs),
        None => (String::new(), String::new(), String::new()),
    };
    fill(
        BODY,
        &[
            ("input_fields", input_fields),
            ("input_loads", input_loads),
            ("input_steps", input_steps),
            ("fields", each(&|i| format!("layer_{i}: Layer{i},"))),
            ("loads", each(&|i| format!("layer_{i}: Layer{i}::load(weights)?,"))),
            ("masks", masks(config)),
            ("calls", each(&|i| call(config, i))),
            ("head_field", if config.tied { String::new() } else { "lm_head: Linear,".to_owned() }),
            ("head_load", if config.tied { String::new() } else { lm_head }),
            ("head", head),
            ("caches", own(config).map(|layer| new_cache(config, layer)).collect()),
            ("shapes", shapes.join(", ")),
            ("table", table),
            ("root", names.of("").trim_end_matches('.').to_owned()),
            ("hidden", dims.hidden_size.to_string()),
            ("eps", literal::number(dims.eps)),
            ("embed_scale", literal::number((dims.hidden_size as f64).powf(0.5))),
        ],
    )
}

fn per_layer_inputs(
    config: &Gemma4TextConfig,
    names: Names,
    PerLayerInput { vocab_size, width }: PerLayerInput,
) -> (String, String, String) {
    let count = config.layers.len();
    let (hidden, eps) = (config.dims.hidden_size, literal::number(config.dims.eps));
    let (all, rows) = (literal::size(count * width), literal::size(vocab_size));
    let path = |module: &str| format!("{:?}", names.of(module));
    let fields = "embed_tokens_per_layer: Embedding, per_layer_model_projection: Linear, \
                  per_layer_projection_norm: RmsNorm,";
    let loads = format!(
        "embed_tokens_per_layer: weights.embedding({}, [{rows}, {all}])?,\n\
         per_layer_model_projection: weights.linear({}, [{all}, {hidden}], false)?,\n\
         per_layer_projection_norm: weights.norm({}, {width}, {eps})?,",
        path("embed_tokens_per_layer"),
        path("per_layer_model_projection"),
        path("per_layer_projection_norm"),
    );
    let steps = fill(
        INPUTS,
        &[
            ("layers", count.to_string()),
            ("width", width.to_string()),
            ("table_scale", literal::number((width as f64).powf(0.5))),
            ("projection_scale", literal::number((hidden as f64).powf(-0.5))),
            ("input_scale", literal::number(2.0_f64.powf(-0.5))),
        ],
    );
    (fields.to_owned(), loads, steps)
}

fn masks(config: &Gemma4TextConfig) -> String {
    let mask = |kind: LayerKind, window: String| {
        let first = config.layers.iter().position(|layer| layer.kind == kind);
        first.map_or(String::new(), |at| {
            format!("let {} = caches[{at}].mask(h.dim(1), {window})?;", mask_name(kind))
        })
    };
    mask(LayerKind::Full, "None".to_owned())
        + &mask(LayerKind::Sliding, format!("Some({})", config.window))
}

/// The call of layer `i`.
fn call(config: &Gemma4TextConfig, i: usize) -> String {
    let layer = &config.layers[i];
    let (result, keys) = match layer.key_values {
        KeyValues::Shared(donor) => ("h".to_owned(), format!("&kept_{donor}")),
        _ if donors(config).any(|donor| donor == i) => {
            (format!("(h, kept_{i})"), format!("&mut caches[{i}]"))
        }
        _ => ("h".to_owned(), format!("&mut caches[{i}]")),
    };
    let mask = mask_name(layer.kind);
    let slice = match config.per_layer_input {
        Some(_) => format!("&layer_slice(&inputs, {i})?, "),
        None => String::new(),
    };
    format!("let {result} = self.layer_{i}.forward(&h, &{mask}, {keys}, {slice}sink)?;")
}

fn new_cache(config: &Gemma4TextConfig, layer: &Gemma4Layer) -> String {
    match layer.kind {
        LayerKind::Full => "KvCache::Plain(crate::cache::PlainCache::new()),".to_owned(),
        LayerKind::Sliding => {
            format!("KvCache::Rotating(crate::cache::RotatingCache::new({}, 0)),", config.window)
        }
    }
}

fn layer(config: &Gemma4TextConfig, names: Names, i: usize) -> String {
    let (dims, spec) = (&config.dims, &config.layers[i]);
    let shared = matches!(spec.key_values, KeyValues::Shared(_));
    let donates = donors(config).any(|donor| donor == i);
    let gated = config.per_layer_input.is_some();
    let keys_only = spec.key_values == KeyValues::OwnKeysOnly;
    let when =
        |condition: bool, text: &str| if condition { text.to_owned() } else { String::new() };
    let values = if keys_only { templates::VALUES_ARE_KEYS } else { templates::VALUES };
    let (result, parameter) = match (shared, donates) {
        (true, _) => ("Array", "(rows, at): &Kept"),
        (_, true) => ("(Array, Kept)", "cache: &mut KvCache"),
        _ => ("Array", "cache: &mut KvCache"),
    };
    fill(
        LAYER,
        &[
            ("doc", doc(spec)),
            ("key_fields", when(!shared, "k_proj: Linear, @value_field@ k_norm: RmsNorm,")),
            ("value_field", when(!keys_only, "v_proj: Linear,")),
            ("gate_fields", when(gated, templates::GATE_FIELDS)),
            ("key_loads", when(!shared, templates::KEY_LOADS)),
            ("value_load", when(!keys_only, templates::VALUE_LOAD)),
            ("gate_loads", when(gated, templates::GATE_LOADS)),
            ("attention", ATTENTION.to_owned()),
            ("own_keys", if shared { String::new() } else { KEYS.to_owned() }),
            ("values_step", values.to_owned()),
            ("at", (if shared { "*at" } else { "at" }).to_owned()),
            ("rows", (if shared { "rows" } else { "&rows" }).to_owned()),
            ("feed_forward", FEED_FORWARD.to_owned()),
            ("gate", when(gated, GATE)),
            ("parameter", parameter.to_owned()),
            ("slice", when(gated, "slice: &Array,")),
            ("result", result.to_owned()),
            ("out", (if donates { "(h, (rows.borrowed(), at))" } else { "h" }).to_owned()),
            ("i", i.to_string()),
            ("path", names.of(&format!("layers.{i}"))),
            ("rope", rope_name(spec.kind).to_owned()),
            ("rotated", spec.rope.rotated(spec.head_dim).to_string()),
            ("hidden", dims.hidden_size.to_string()),
            ("queries", literal::size(dims.heads * spec.head_dim)),
            ("keys", literal::size(spec.kv_heads * spec.head_dim)),
            ("head_dim", spec.head_dim.to_string()),
            ("heads", dims.heads.to_string()),
            ("kv_heads", spec.kv_heads.to_string()),
            ("inner", literal::size(spec.intermediate_size)),
            ("width", config.per_layer_input.map_or(0, |input| input.width).to_string()),
            ("eps32", format!("{:?}", dims.eps as f32)),
            ("eps", literal::number(dims.eps)),
        ],
    )
}

fn doc(layer: &Gemma4Layer) -> String {
    let sees = if layer.kind == LayerKind::Full { "everything" } else { "a window" };
    match layer.key_values {
        KeyValues::Own => format!("sees {sees}"),
        KeyValues::OwnKeysOnly => format!("sees {sees}; its keys are its values too"),
        KeyValues::Shared(donor) => {
            format!("sees {sees}, through the keys and values of layer {donor}")
        }
    }
}
