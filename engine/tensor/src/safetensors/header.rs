//! The header: where each tensor is. Pure functions over bytes, so that fuzzers need no file.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};

use super::error::Fault;
use crate::Dtype;
use crate::view::byte_length;

/// Longest header read, the limit of the `safetensors` crate.
pub const MAX_HEADER: u64 = 100_000_000;
/// Bytes of the header length.
const LENGTH: u64 = 8;
const METADATA: &str = "__metadata__";

/// A validated header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Tensors in the order of the header.
    pub entries: Vec<Entry>,
    /// The `__metadata__` map.
    pub metadata: BTreeMap<String, String>,
}

/// One tensor of a validated header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Where its bytes are, from the start of the file.
    pub bytes: Range<usize>,
}

impl Header {
    /// Reads and checks the header of a whole file.
    ///
    /// # Errors
    /// A [`Fault`] for each way a file can be wrong, the first one found.
    pub fn parse(file: &[u8]) -> Result<Self, Fault> {
        let header = json_bytes(file)?;
        let data_start = LENGTH + header.len() as u64;
        let wire: WireHeader = serde_json::from_slice(header)
            .map_err(|error| Fault::BadHeader { message: error.to_string() })?;
        let metadata = unique_metadata(wire.metadata)?;
        refuse_duplicates(wire.tensors.iter().map(|(name, _)| name))?;
        let tensors: Vec<Located> =
            wire.tensors.into_iter().map(Located::from_wire).collect::<Result<_, _>>()?;
        check_layout(&tensors, data_start, file.len() as u64)?;
        let entries = tensors.into_iter().map(|tensor| tensor.entry(data_start)).collect();
        refuse_what_the_crate_refuses(file)?;
        Ok(Self { entries, metadata })
    }
}

/// The JSON part of the file.
fn json_bytes(file: &[u8]) -> Result<&[u8], Fault> {
    let found = file.len() as u64;
    let Some((length, rest)) = file.split_first_chunk::<{ LENGTH as usize }>() else {
        return Err(Fault::NoHeaderLength { found });
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(Fault::HugeHeader { found: length, wanted: MAX_HEADER });
    }
    let header = rest
        .get(..length as usize)
        .ok_or(Fault::TruncatedHeader { found, wanted: LENGTH + length })?;
    if header.first() != Some(&b'{') {
        return Err(Fault::BadHeader { message: "wanted `{` as its first byte".to_owned() });
    }
    Ok(header)
}

/// A tensor whose dtype, shape and offsets agree with each other.
struct Located {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    begin: u64,
    end: u64,
}

impl Located {
    fn from_wire((name, wire): (String, WireTensor)) -> Result<Self, Fault> {
        let WireTensor { dtype, shape, data_offsets: [begin, end] } = wire;
        let dtype = Dtype::from_safetensors(&dtype)
            .map_err(|error| Fault::UnknownDtype { tensor: name.clone(), found: error.found })?;
        let wanted = byte_length(dtype, &shape)
            .map_err(|error| Fault::Shape { tensor: name.clone(), error })?
            as u64;
        let Some(found) = end.checked_sub(begin) else {
            return Err(Fault::ReversedOffsets { tensor: name, begin, end });
        };
        if found != wanted {
            return Err(Fault::WrongSize { tensor: name, dtype, shape, found, wanted });
        }
        Ok(Self { name, dtype, shape, begin, end })
    }

    fn entry(self, data_start: u64) -> Entry {
        // The layout check has shown that these lie within the file.
        let bytes = (data_start + self.begin) as usize..(data_start + self.end) as usize;
        Entry { name: self.name, dtype: self.dtype, shape: self.shape, bytes }
    }
}

/// The tensors must cover the data, each byte once, and the data must reach the end of the file.
fn check_layout(tensors: &[Located], data_start: u64, file_len: u64) -> Result<(), Fault> {
    let mut order: Vec<&Located> = tensors.iter().collect();
    order.sort_by_key(|tensor| (tensor.begin, tensor.end));
    check_neighbours(&order)?;
    let data_len = order.last().map_or(0, |tensor| tensor.end);
    let (found, wanted) = (file_len, data_start.saturating_add(data_len));
    if found > wanted {
        return Err(Fault::TrailingBytes { found, wanted });
    }
    match order.iter().find(|tensor| data_start.saturating_add(tensor.end) > found) {
        Some(tensor) => Err(Fault::TruncatedData { tensor: tensor.name.clone(), found, wanted }),
        None => Ok(()),
    }
}

/// Each tensor, in order of offset, begins where the one before it ends.
fn check_neighbours(order: &[&Located]) -> Result<(), Fault> {
    let mut end = 0;
    for (at, tensor) in order.iter().enumerate() {
        if tensor.begin > end {
            let (found, wanted) = (tensor.begin, end);
            return Err(Fault::Hole { tensor: tensor.name.clone(), found, wanted });
        }
        if tensor.begin < end {
            let (first, second) = (order[at - 1].name.clone(), tensor.name.clone());
            return Err(Fault::Overlap { first, second, end, begin: tensor.begin });
        }
        end = tensor.end;
    }
    Ok(())
}

fn refuse_what_the_crate_refuses(file: &[u8]) -> Result<(), Fault> {
    safetensors::SafeTensors::read_metadata(file)
        .map(drop)
        .map_err(|error| Fault::Refused { message: error.to_string() })
}

fn refuse_duplicates<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Fault::DuplicateKey { key: name.clone() });
        }
    }
    Ok(())
}

fn unique_metadata(maps: Vec<Pairs<String>>) -> Result<BTreeMap<String, String>, Fault> {
    if maps.len() > 1 {
        return Err(Fault::DuplicateKey { key: METADATA.to_owned() });
    }
    let pairs: Vec<_> = maps.into_iter().flat_map(|map| map.0).collect();
    refuse_duplicates(pairs.iter().map(|(key, _)| key))?;
    Ok(pairs.into_iter().collect())
}

/// The header as written, duplicates and all.
#[derive(Default)]
struct WireHeader {
    metadata: Vec<Pairs<String>>,
    tensors: Vec<(String, WireTensor)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WireTensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for WireHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = WireHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireHeader, A::Error> {
        let mut header = WireHeader::default();
        while let Some(key) = map.next_key::<String>()? {
            if key == METADATA {
                // MLX writes null where it was given no metadata.
                let metadata: Option<Pairs<String>> = map.next_value()?;
                header.metadata.push(metadata.unwrap_or_default());
            } else {
                header.tensors.push((key, map.next_value()?));
            }
        }
        Ok(header)
    }
}

/// A JSON map in written order, duplicate keys kept so that they can be refused.
pub(super) struct Pairs<T>(pub(super) Vec<(String, T)>);

impl<T> Default for Pairs<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Pairs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(PairsVisitor(PhantomData))
    }
}

struct PairsVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for PairsVisitor<T> {
    type Value = Pairs<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<T>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

/// The names two or more pairs share, for readers of other maps.
pub(super) fn first_duplicate<T>(pairs: &Pairs<T>) -> Option<&str> {
    let mut seen = HashSet::new();
    pairs.0.iter().map(|(name, _)| name.as_str()).find(|name| !seen.insert(*name))
}
