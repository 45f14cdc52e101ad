//! Extents that follow from a case's sizes: `64`, `n`, `rows*128`, `ceil(n/32)*32`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::ops::Argument;

/// A product of factors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WireExtent", into = "String")]
pub struct Extent(Vec<Factor>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Factor {
    Number(u64),
    Size(String),
    /// A size over a number that divides it.
    Part(String, u64),
    /// A size over a number, rounded up.
    Ceil(String, u64),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WireExtent {
    Number(u64),
    Text(String),
}

/// An extent that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    /// Not of the form.
    #[error(
        "`{0}` is no extent: wanted a product of numbers, sizes, `size/number` and \
         `ceil(size/number)`, such as `ceil(n/32)*32`"
    )]
    Form(String),
    /// A size that the case does not have, or that is no number.
    #[error("extent `{extent}`: the case has no size `{size}`")]
    NoSize {
        /// The extent.
        extent: String,
        /// The size.
        size: String,
    },
    /// A quotient with a rest.
    #[error(
        "extent `{extent}`: {size} = {value} is no multiple of {by}; wanted ceil({size}/{by})?"
    )]
    Rest {
        /// The extent.
        extent: String,
        /// The size.
        size: String,
        /// Its value.
        value: u64,
        /// The number it is divided by.
        by: u64,
    },
    /// A product past what an extent may be.
    #[error("extent `{extent}` overflows")]
    Overflow {
        /// The extent.
        extent: String,
    },
}

impl Extent {
    /// Its value for some sizes.
    ///
    /// # Errors
    /// [`ExtentError`], other than its form.
    pub fn of(&self, sizes: &BTreeMap<String, Argument>) -> Result<u32, ExtentError> {
        let overflow = || ExtentError::Overflow { extent: self.to_string() };
        let mut product = 1_u64;
        for factor in &self.0 {
            product = product.checked_mul(self.factor(factor, sizes)?).ok_or_else(overflow)?;
        }
        u32::try_from(product).map_err(|_| overflow())
    }

    fn factor(
        &self,
        factor: &Factor,
        sizes: &BTreeMap<String, Argument>,
    ) -> Result<u64, ExtentError> {
        let size = |name: &String| match sizes.get(name) {
            Some(Argument::Int(value)) if *value >= 0 => Ok(*value as u64),
            _ => Err(ExtentError::NoSize { extent: self.to_string(), size: name.clone() }),
        };
        match factor {
            Factor::Number(number) => Ok(*number),
            Factor::Size(name) => size(name),
            Factor::Ceil(name, by) => Ok(size(name)?.div_ceil(*by)),
            Factor::Part(name, by) => {
                let value = size(name)?;
                if value.is_multiple_of(*by) {
                    return Ok(value / by);
                }
                let (extent, size) = (self.to_string(), name.clone());
                Err(ExtentError::Rest { extent, size, value, by: *by })
            }
        }
    }
}

impl FromStr for Extent {
    type Err = ExtentError;

    fn from_str(text: &str) -> Result<Self, ExtentError> {
        let factors = text.split('*').map(|factor| parse(factor.trim()));
        let factors = factors.collect::<Option<Vec<_>>>();
        factors.map(Self).ok_or_else(|| ExtentError::Form(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Factor> {
    if let Ok(number) = text.parse() {
        return Some(Factor::Number(number));
    }
    if let Some(inner) = text.strip_prefix("ceil(").and_then(|rest| rest.strip_suffix(')')) {
        let (name, by) = quotient(inner)?;
        return Some(Factor::Ceil(name, by));
    }
    if text.contains('/') {
        let (name, by) = quotient(text)?;
        return Some(Factor::Part(name, by));
    }
    name(text).map(Factor::Size)
}

fn quotient(text: &str) -> Option<(String, u64)> {
    let (size, by) = text.split_once('/')?;
    let by = by.trim().parse().ok().filter(|by| *by > 0)?;
    Some((name(size.trim())?, by))
}

fn name(text: &str) -> Option<String> {
    let first = text.bytes().next()?.is_ascii_alphabetic();
    let rest = text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (first && rest).then(|| text.to_owned())
}

impl TryFrom<WireExtent> for Extent {
    type Error = ExtentError;

    fn try_from(wire: WireExtent) -> Result<Self, ExtentError> {
        match wire {
            WireExtent::Number(number) => Ok(Self(vec![Factor::Number(number)])),
            WireExtent::Text(text) => text.parse(),
        }
    }
}

impl From<u32> for Extent {
    fn from(number: u32) -> Self {
        Self(vec![Factor::Number(number.into())])
    }
}

impl From<Extent> for String {
    fn from(extent: Extent) -> Self {
        extent.to_string()
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, factor) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("*")?;
            }
            match factor {
                Factor::Number(number) => number.fmt(f)?,
                Factor::Size(name) => name.fmt(f)?,
                Factor::Part(name, by) => write!(f, "{name}/{by}")?,
                Factor::Ceil(name, by) => write!(f, "ceil({name}/{by})")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn sizes() -> BTreeMap<String, Argument> {
        BTreeMap::from([("n".to_owned(), Argument::Int(65)), ("rows".to_owned(), Argument::Int(4))])
    }

    #[rstest]
    #[case("64", Ok(64))]
    #[case("n", Ok(65))]
    #[case("rows*128", Ok(512))]
    #[case("ceil(n/32)*32", Ok(96))]
    #[case("rows/2 * n", Ok(130))]
    fn extents_follow_sizes(#[case] text: &str, #[case] wanted: Result<u32, ExtentError>) {
        let extent: Extent = text.parse().unwrap();
        assert_eq!(extent.of(&sizes()), wanted);
        assert_eq!(extent.to_string().parse(), Ok(extent));
    }

    #[rstest]
    #[case::rest("n/32", "ceil(n/32)?")]
    #[case::unknown("m", "no size `m`")]
    #[case::overflow("n*4000000000*4000000000", "overflows")]
    fn an_extent_that_cannot_be_had_says_why(#[case] text: &str, #[case] wanted: &str) {
        let error = text.parse::<Extent>().unwrap().of(&sizes()).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }

    #[rstest]
    #[case("")]
    #[case("n+1")]
    #[case("n/0")]
    #[case("ceil(n)")]
    #[case("-1")]
    #[case("2n")]
    fn another_form_is_refused(#[case] text: &str) {
        assert_eq!(text.parse::<Extent>(), Err(ExtentError::Form(text.to_owned())));
    }
}
