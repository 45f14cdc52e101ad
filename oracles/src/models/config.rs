//! `config.json` of a model folder.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::rope_config;
use crate::error::OracleError;
use crate::ops::{Mode, RopeScaling};

/// The keys the three architectures read; each says which it needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireConfig {
    model_type: Option<String>,
    hidden_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    intermediate_size: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    vocab_size: Option<usize>,
    rms_norm_eps: Option<f64>,
    max_position_embeddings: Option<usize>,
    rope_theta: Option<f64>,
    rope_traditional: Option<bool>,
    rope_scaling: Option<Value>,
    rope_parameters: Option<Value>,
    tie_word_embeddings: Option<bool>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    layer_types: Option<Vec<String>>,
    sliding_window: Option<usize>,
    sliding_window_pattern: Option<usize>,
    query_pre_attn_scalar: Option<f64>,
    rope_local_base_freq: Option<f64>,
    quantization: Option<Map<String, Value>>,
}

/// A configuration and the file it came from.
#[derive(Debug)]
pub(super) struct Config {
    file: PathBuf,
    wire: WireConfig,
}

macro_rules! keys {
    ($($key:ident: $type:ty),+ $(,)?) => {
        impl Config {
            $(
                #[doc = concat!("`", stringify!($key), "`, where it is given.")]
                pub(super) fn $key(&self) -> Option<$type> {
                    self.wire.$key
                }
            )+
        }
    };
}

keys! {
    hidden_size: usize,
    num_hidden_layers: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    head_dim: usize,
    vocab_size: usize,
    rms_norm_eps: f64,
    max_position_embeddings: usize,
    rope_traditional: bool,
    tie_word_embeddings: bool,
    attention_bias: bool,
    mlp_bias: bool,
    sliding_window: usize,
    sliding_window_pattern: usize,
    query_pre_attn_scalar: f64,
    rope_local_base_freq: f64,
}

impl Config {
    pub(super) fn read(file: &Path) -> Result<Self, OracleError> {
        let text = std::fs::read_to_string(file)
            .map_err(|error| OracleError::model(file, error.to_string()))?;
        let wire = serde_json::from_str(&text)
            .map_err(|error| OracleError::model(file, error.to_string()))?;
        Ok(Self { file: file.to_owned(), wire })
    }

    pub(super) fn error(&self, message: impl Into<String>) -> OracleError {
        OracleError::model(&self.file, message)
    }

    pub(super) fn model_type(&self) -> &str {
        self.wire.model_type.as_deref().unwrap_or("absent")
    }

    pub(super) fn layer_types(&self) -> Option<&[String]> {
        self.wire.layer_types.as_deref()
    }

    /// A key the architecture cannot do without.
    pub(super) fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, OracleError> {
        value.ok_or_else(|| {
            self.error(format!("`{key}` is absent, wanted by {}", self.model_type()))
        })
    }

    /// `rope_theta`, from `rope_parameters` where it stands there only.
    pub(super) fn rope_theta(&self) -> Option<f64> {
        let nested = || self.wire.rope_parameters.as_ref()?.get("rope_theta")?.as_f64();
        self.wire.rope_theta.or_else(nested)
    }

    /// `rope_scaling`, or `rope_parameters` where only those are given.
    pub(super) fn rope_scaling(&self) -> Result<RopeScaling, OracleError> {
        let given = self.wire.rope_scaling.as_ref().or(self.wire.rope_parameters.as_ref());
        given.map_or(Ok(RopeScaling::Default), |value| {
            rope_config::scaling(value).map_err(|message| self.error(message))
        })
    }

    /// How the module at `path` is quantized, where `quantization` says it is.
    pub(super) fn quantization(&self, path: &str) -> Result<Option<Mode>, OracleError> {
        let Some(top) = &self.wire.quantization else { return Ok(None) };
        let parameters = match top.get(path) {
            Some(Value::Bool(false)) => return Ok(None),
            Some(Value::Object(own)) => own,
            _ => top,
        };
        let number = |key: &str, default| match parameters.get(key) {
            None => Ok(default),
            Some(value) => value.as_u64().ok_or_else(|| {
                self.error(format!("quantization `{key}` is {value}, wanted a number"))
            }),
        };
        match parameters.get("mode").and_then(Value::as_str).unwrap_or("affine") {
            "affine" => Ok(Some(Mode::Affine {
                bits: number("bits", 4)? as u32,
                group_size: number("group_size", 64)? as usize,
            })),
            other => Err(self.error(format!("quantization mode is `{other}`, wanted affine"))),
        }
    }
}
